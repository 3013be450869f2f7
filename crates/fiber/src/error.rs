//! The errors: [`SpawnError`] for starting a fiber, [`NotStarted`] with the closure that it was to run,
//! [`JoinError`] for waiting for its result.

use std::any::Any;
use std::error::Error;
use std::{fmt, io};

use crate::limits::MAX_FIBERS;
use crate::panic_place::PanicPlace;

/// Why a fiber could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The calling thread has not entered a scheduler.
    #[error(
        "no fiber scheduler is entered on this thread; spawn inside Scheduler::enter or inside a \
         fiber, or use a Remote"
    )]
    NoScheduler,
    /// The scheduler that should run the fiber was dropped.
    #[error(
        "the scheduler that should run the fiber was dropped; its thread has ended or is ending"
    )]
    Closed,
    /// No memory could be mapped for the stack.
    #[error(
        "no stack of {stack_bytes} bytes could be mapped for fiber number {live} of its thread; lower \
         the stack size or the number of fibers, or raise vm.max_map_count"
    )]
    Stack {
        /// Usable bytes asked for.
        stack_bytes: usize,
        /// Fibers alive on the thread, the new one included.
        live: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// The thread already has [`MAX_FIBERS`](crate::MAX_FIBERS) fibers.
    #[error("the thread already has {} fibers; join some before starting more", MAX_FIBERS)]
    TooMany,
}

/// Why [`Builder::start_now`](crate::Builder::start_now) has started no fiber, with the closure that
/// the fiber was to run. The caller decides where that is dropped: a destructor of what it captures
/// may run any code.
#[derive(thiserror::Error)]
#[error("the fiber could not be started")]
pub struct NotStarted<F> {
    /// The reason.
    #[source]
    pub error: SpawnError,
    /// The closure, which has not run.
    pub closure: F,
}

/// Closures have no `Debug`.
impl<F> fmt::Debug for NotStarted<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotStarted").field("error", &self.error).finish_non_exhaustive()
    }
}

/// Why a fiber has no result.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The fiber's closure panicked.
    #[error("fiber '{fiber}' panicked: {}{}", panic_text(&**payload), At(place.as_deref()))]
    Panicked {
        /// The fiber's name.
        fiber: String,
        /// The payload of the panic; give it to [`std::panic::resume_unwind`] to let the panic go
        /// on.
        payload: Box<dyn Any + Send>,
        /// Where it was raised, if that is known: see [`note_panics`](crate::note_panics).
        place: Option<Box<PanicPlace>>,
    },
    /// The fiber was unwound, or never began, because its scheduler was dropped.
    #[error("the fiber did not run to its end because its scheduler was dropped")]
    Cancelled,
    /// The fiber is one of another thread or host, and the request that starts it or brings its
    /// result failed. It prints as the error of that request; in a rack that is a `DelegateError`, and
    /// `DelegateError::from` makes one of any join error.
    #[error(transparent)]
    Delegate(Box<dyn Error + Send + Sync>),
    /// The fiber was handed over but could not be started.
    #[error("the fiber could not be started")]
    NotStarted(#[from] SpawnError),
    /// The join would wait for ever: it blocks the thread that has to run the fiber.
    #[error(
        "joined outside any fiber on the thread that runs the fiber, which would wait for ever; \
         join from a fiber, or run the scheduler until is_finished()"
    )]
    WouldDeadlock,
}

impl JoinError {
    /// The payload of the fiber's panic.
    ///
    /// # Errors
    /// Gives `self` back when the fiber did not panic.
    pub fn into_panic(self) -> Result<Box<dyn Any + Send>, JoinError> {
        match self {
            JoinError::Panicked { payload, .. } => Ok(payload),
            other => Err(other),
        }
    }
}

/// As if derived, but with the text of a panic: an `unwrap` prints nothing else.
impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Panicked { fiber, payload, place } => {
                let (text, mut shown) = (panic_text(&**payload), f.debug_struct("Panicked"));
                shown.field("fiber", fiber).field("payload", &text);
                if let Some(place) = place {
                    shown.field("place", &format_args!("{place}"));
                }
                shown.finish()
            }
            JoinError::Cancelled => f.write_str("Cancelled"),
            JoinError::Delegate(error) => f.debug_tuple("Delegate").field(error).finish(),
            JoinError::NotStarted(error) => f.debug_tuple("NotStarted").field(error).finish(),
            JoinError::WouldDeadlock => f.write_str("WouldDeadlock"),
        }
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "(a payload that is not text)"
    }
}

/// What follows the text of a panic: where it was raised, if that is known.
struct At<'a>(Option<&'a PanicPlace>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |place| write!(f, ", at {place}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_of_a_failed_join_shows_the_panic_text() {
        let place = PanicPlace { file: "src/eat.rs".into(), line: 3, column: 9 };
        let panicked =
            |payload| JoinError::Panicked { fiber: "eater".into(), payload, place: None };
        let mut of_text = panicked(Box::new("no bread".to_owned()));
        assert_eq!(format!("{of_text:?}"), r#"Panicked { fiber: "eater", payload: "no bread" }"#);
        assert_eq!(of_text.to_string(), "fiber 'eater' panicked: no bread");
        let JoinError::Panicked { place: of, .. } = &mut of_text else { unreachable!() };
        *of = Some(Box::new(place));
        let shown = r#"Panicked { fiber: "eater", payload: "no bread", place: src/eat.rs:3:9 }"#;
        assert_eq!(format!("{of_text:?}"), shown);
        let said = "fiber 'eater' panicked: no bread, at src/eat.rs:3:9";
        assert_eq!(of_text.to_string(), said);
        assert!(format!("{:?}", panicked(Box::new(7))).contains("not text"));
        assert_eq!(format!("{:?}", JoinError::Cancelled), "Cancelled");
        let closed = JoinError::NotStarted(SpawnError::Closed);
        assert_eq!(format!("{closed:?}"), "NotStarted(Closed)");
    }

    #[test]
    fn a_failed_request_prints_as_its_error() {
        let source = io::Error::other("no memory");
        let failed = SpawnError::Stack { stack_bytes: 4096, live: 1, source };
        let text = failed.to_string();
        let lost = JoinError::Delegate(Box::new(failed));
        assert_eq!(lost.to_string(), text);
        let cause = lost.source().expect("the cause of the request's error");
        assert_eq!(cause.to_string(), "no memory");
    }
}
