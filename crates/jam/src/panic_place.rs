//! Where functions of the program panic that jams run in or call, for the senders of those jams: a caught
//! panic has a message, and only the panic hook is told file and line.
//!
//! The hook notes them for its thread and calls the hook that was there before. A program that sets a
//! hook of its own later keeps them by calling the one that it replaces; otherwise errors have the
//! message only.
//!
//! It is set when the process first asks for its receiver. Taking a hook and setting another are two steps in
//! stable Rust, so a hook that another thread sets between them is lost: programs set theirs before a rack
//! runs, or later than that.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Once;

use primitive::drop_payload;
use trust_core::PanicReport;

use crate::enter::is_inside;
use crate::error::Panicked;

thread_local! {
    /// The last panic of this thread inside a jam, a Local Function or what they called.
    static LAST: RefCell<Option<Panicked>> = const { RefCell::new(None) };
}

/// Has panics noted from now on.
pub(crate) fn note_panics() {
    static SET: Once = Once::new();
    // A thread that panics must not set a hook.
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
    if let (true, Some(at)) = (is_inside(), info.location()) {
        let message = message_of(info.payload());
        let (file, line, column) = (at.file().to_owned(), at.line(), at.column());
        let _ = LAST.try_with(|last| last.replace(Some(Panicked { message, file, line, column })));
    }
}

/// What the sender gets of a caught panic of the program's code, whose payload is freed.
pub(crate) fn panicked_of(payload: Box<dyn Any + Send>) -> Panicked {
    let message = message_of(&*payload);
    drop_payload(payload);
    // A destructor may have panicked after it and caught that, and a resumed panic runs no hook: then
    // the last place is another panic's, and so is its message.
    let last = LAST.try_with(RefCell::take).ok().flatten();
    last.filter(|last| last.message == message)
        .unwrap_or(Panicked { message, ..Panicked::default() })
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    PanicReport::of(payload).message
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use super::*;
    use crate::enter::barrier;

    fn panicked(run: impl FnOnce()) -> Panicked {
        panicked_of(catch_unwind(AssertUnwindSafe(|| barrier(run))).unwrap_err())
    }

    /// Panics when it is dropped, and catches that.
    struct Second;

    impl Drop for Second {
        fn drop(&mut self) {
            catch_unwind(|| panic!("second")).unwrap_err();
        }
    }

    #[test]
    fn a_panic_has_the_place_of_its_own() {
        note_panics();
        let (of_text, line) = (panicked(|| panic!("text")), line!());
        assert_eq!((&of_text.message[..], of_text.line), ("text", line), "{of_text}");
        assert!(of_text.file.ends_with("panic_place.rs"), "{of_text}");
        let number = 7;
        let (of_format, line) = (panicked(|| panic!("number {number}")), line!());
        assert_eq!((&of_format.message[..], of_format.line), ("number 7", line));
        let none = panicked(|| resume_unwind(Box::new("resumed")));
        assert_eq!((&none.message[..], none.line), ("resumed", 0));
        let other = panicked(|| {
            let _second = Second;
            panic!("first");
        });
        assert_eq!((&other.message[..], other.line), ("first", 0), "not the place of the second");
        let outside = catch_unwind(|| panic!("outside")).unwrap_err();
        assert_eq!(panicked_of(outside).line, 0);
    }
}
