//! Where panics were raised, for those who catch them: a caught panic has a message, and only the panic
//! hook is told file and line.
//!
//! The hook ([`note_panics`]) records each panic for its thread, then calls the hook that was there before.
//! Code that catches a panic takes the record ([`panic_place_of`]). What holds:
//!
//! 1. A record belongs to the fiber that panicked, or to the thread outside fibers: a destructor may wait
//!    while a panic unwinds its fiber, and other fibers may panic meanwhile.
//! 2. A record matches a payload of the same type and, for text, of the same address, length and hash. So a
//!    panic that is resumed with a new payload has no place, and neither has one that another hook has kept
//!    from ours.
//! 3. The newest match is taken. Two panics of one fiber with the same literal, or with payloads of one type
//!    that are not text, can be confused if the inner one was caught without asking for its place. So can a
//!    record that was never asked for and a later panic that the hook did not see, if the text is equal and
//!    lies where the other was, or if a later scheduler of the thread gives its fiber the same number.
//! 4. A thread keeps the newest [`MAX_NOTES`]: code that catches panics without asking leaves records.

use std::any::{Any, TypeId};
use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{PanicHookInfo, resume_unwind, set_hook, take_hook};
use std::sync::Once;

use crate::core::block::FiberId;
use crate::core::current;
use crate::panic_place::PanicPlace;

/// Notes that a thread keeps: panics that unwind at the same time, one inside the other or in different
/// fibers.
const MAX_NOTES: usize = 16;

/// A panic that the hook has seen.
struct Note {
    /// The fiber that panicked.
    fiber: Option<FiberId>,
    payload: Trace,
    place: Box<PanicPlace>,
}

/// What tells payloads apart. The text itself is not kept, since it may be long.
#[derive(PartialEq, Eq)]
struct Trace {
    type_id: TypeId,
    /// Address, length and hash.
    text: Option<(usize, usize, u64)>,
}

impl Trace {
    fn of(payload: &(dyn Any + Send)) -> Self {
        let text = match payload.downcast_ref::<&'static str>() {
            Some(text) => Some(*text),
            None => payload.downcast_ref::<String>().map(String::as_str),
        };
        let text = text.map(|text| {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            (text.as_ptr().addr(), text.len(), hasher.finish())
        });
        Trace { type_id: payload.type_id(), text }
    }
}

thread_local! {
    /// The notes of this thread, newest last. Taken out while they are changed, so that nothing here
    /// can panic inside a hook.
    static NOTES: Cell<Vec<Note>> = const { Cell::new(Vec::new()) };
}

/// Has the places of panics noted from now on, in all threads of the process, by a panic hook that calls
/// the hook which was there before. Only the first call does something, and one of a panicking thread
/// nothing, since it must not set a hook.
///
/// A program that sets a hook of its own later keeps the places by calling the hook that it replaces;
/// otherwise caught panics have none. Taking a hook and setting another are two steps in stable Rust, so a
/// hook that another thread sets between them is lost: programs set theirs before they call this, or
/// after it has returned.
pub fn note_panics() {
    static SET: Once = Once::new();
    if !std::thread::panicking() {
        SET.call_once(|| {
            let next = take_hook();
            set_hook(Box::new(move |info| {
                note(info);
                next(info);
            }));
        });
    }
}

fn note(info: &PanicHookInfo<'_>) {
    let Some(at) = info.location() else { return };
    let place = PanicPlace { file: at.file().into(), line: at.line(), column: at.column() };
    keep(info.payload(), Box::new(place));
}

/// Keeps the place of a panic of the running fiber.
fn keep(payload: &(dyn Any + Send), place: Box<PanicPlace>) {
    let note = Note { fiber: running(), payload: Trace::of(payload), place };
    change(|notes| {
        if notes.len() == MAX_NOTES {
            notes.remove(0);
        }
        notes.push(note);
    });
}

/// Where the panic with this payload was raised, if [`note_panics`] was called before. To be asked once,
/// where the panic was caught: on its thread, and in its fiber.
#[cold]
pub fn panic_place_of(payload: &(dyn Any + Send)) -> Option<Box<PanicPlace>> {
    let (fiber, payload) = (running(), Trace::of(payload));
    let note = change(|notes| {
        let is_it = |note: &Note| note.fiber == fiber && note.payload == payload;
        let mut newer = notes.split_off(notes.iter().rposition(is_it)?).into_iter();
        let found = newer.next();
        // The fiber's own are of panics that were caught while this one unwound.
        notes.extend(newer.filter(|note| note.fiber != fiber));
        found
    });
    Some(note.flatten()?.place)
}

/// Resumes in the running fiber a panic that was caught outside it, with the place that was found there.
#[cold]
pub fn resume_panic(payload: Box<dyn Any + Send>, place: Option<Box<PanicPlace>>) -> ! {
    if let Some(place) = place {
        keep(&*payload, place);
    }
    resume_unwind(payload)
}

/// `None` if the thread is about to end.
fn change<R>(change: impl FnOnce(&mut Vec<Note>) -> R) -> Option<R> {
    let with = |cell: &Cell<Vec<Note>>| {
        let mut notes = cell.take();
        let result = change(&mut notes);
        cell.set(notes);
        result
    };
    NOTES.try_with(with).ok()
}

fn running() -> Option<FiberId> {
    current::with_fiber(|_, block| block.id.get())
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

    use super::*;
    use crate::{Config, JoinError, Scheduler, spawn_local, yield_now};

    type Payload = Box<dyn Any + Send>;

    fn caught(run: impl FnOnce()) -> Payload {
        note_panics();
        catch_unwind(AssertUnwindSafe(run)).unwrap_err()
    }

    fn line_of(payload: &Payload) -> Option<u32> {
        let place = panic_place_of(&**payload)?;
        assert_eq!((&*place.file, place.column > 0), (file!(), true), "{place}");
        Some(place.line)
    }

    /// Panics with the same literal wherever it is called.
    #[track_caller]
    fn fall() {
        panic!("fell");
    }

    /// Runs this when it is dropped.
    struct AtLast<F: FnMut()>(F);

    impl<F: FnMut()> Drop for AtLast<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }

    #[test]
    fn a_caught_panic_has_the_place_of_its_own() {
        let (of_text, line) = (caught(|| panic!("text")), line!());
        assert_eq!(line_of(&of_text), Some(line));
        assert_eq!(line_of(&of_text), None, "it is asked once");
        let number = 7;
        let (of_format, line) = (caught(|| panic!("number {number}")), line!());
        assert_eq!(line_of(&of_format), Some(line));
        let (of_value, line) = (caught(|| panic_any(7u8)), line!());
        assert_eq!(line_of(&of_value), Some(line));
        let (of_caller, line) = (caught(|| fall()), line!());
        assert_eq!(line_of(&of_caller), Some(line));
    }

    #[test]
    fn a_resumed_panic_has_the_place_of_its_payload_only() {
        let number = 8;
        let (first, line) = (caught(|| panic!("number {number}")), line!());
        // The same text elsewhere, and another type without text.
        let resumed = caught(|| resume_unwind(Box::new(format!("number {number}"))));
        assert_eq!(line_of(&resumed), None);
        let (_of_value, resumed) =
            (caught(|| panic_any(7u8)), caught(|| resume_unwind(Box::new(7u16))));
        assert_eq!(line_of(&resumed), None);
        let again = caught(|| resume_unwind(first));
        assert_eq!(line_of(&again), Some(line), "it is the same panic");
    }

    #[test]
    fn a_panic_of_a_destructor_is_not_taken_for_the_one_that_unwinds() {
        // Formatted, so that the texts are equal and lie apart.
        for asks in [true, false] {
            let (mut line, number) = (0, 9);
            let outer = caught(|| {
                let _last = AtLast(|| {
                    let (inner, line) = (caught(|| panic!("number {number}")), line!());
                    assert!(!asks || line_of(&inner) == Some(line));
                });
                line = line!() + 1;
                panic!("number {number}");
            });
            assert_eq!(line_of(&outer), Some(line));
        }
        // As the inner one is asked for its place.
        let mut line = 0;
        let outer = caught(|| {
            let _last = AtLast(|| assert!(line_of(&caught(|| fall())).is_some()));
            line = line!() + 1;
            fall();
        });
        assert_eq!(line_of(&outer), Some(line));
    }

    #[test]
    fn a_thread_keeps_the_newest_notes() {
        let outer = caught(|| {
            let _last = AtLast(|| (0..MAX_NOTES).for_each(|_| drop(caught(|| panic!("inner")))));
            panic!("outer");
        });
        assert_eq!(line_of(&outer), None);
        assert_eq!(change(|notes| notes.len()), Some(MAX_NOTES));
        let (last, line) = (caught(|| panic!("last")), line!());
        assert_eq!(line_of(&last), Some(line));
    }

    fn joined(error: &JoinError) -> Option<u32> {
        let JoinError::Panicked { place, .. } = error else { panic!("{error:?}") };
        place.as_ref().map(|place| place.line)
    }

    #[test]
    fn fibers_that_panic_in_turn_have_places_of_their_own() {
        note_panics();
        let scheduler = Scheduler::new(Config::default()).unwrap();
        let first = || {
            let _last = AtLast(|| (0..3).for_each(|_| yield_now()));
            fall();
        };
        let line = line!() - 2;
        let second = || {
            let _last = AtLast(yield_now);
            fall();
        };
        let [one, two] = scheduler.enter(|| [spawn_local(first), spawn_local(second)]);
        while !one.is_finished() || !two.is_finished() {
            scheduler.run(1);
        }
        let [one, two] = [one, two].map(|fiber| fiber.join().unwrap_err());
        assert_eq!((joined(&one), joined(&two)), (Some(line), Some(line + 5)));
        assert!(one.to_string().ends_with(&format!("fell, at {}:{line}:13", file!())), "{one}");
    }

    #[test]
    fn a_panic_that_is_resumed_in_a_fiber_keeps_its_place() {
        for adopts in [true, false] {
            let scheduler = Scheduler::new(Config::default()).unwrap();
            let (payload, line) = (caught(|| panic!("outside")), line!());
            let place = panic_place_of(&*payload);
            let fiber = scheduler.enter(|| {
                spawn_local(move || {
                    if adopts { resume_panic(payload, place) } else { resume_unwind(payload) }
                })
            });
            scheduler.run(1);
            let error = fiber.join().map(|never: ()| never).unwrap_err();
            assert_eq!(joined(&error), adopts.then_some(line));
        }
    }
}
