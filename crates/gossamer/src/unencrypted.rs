//! The warning that a host gives when it joins a rack over RDMA.
//!
//! The warning must reach the user of a program that knows nothing about it. It is an event of
//! `tracing` where the program has a subscriber, and goes to standard error otherwise.

use std::io::{self, Write};
use std::sync::Once;

/// The warning of every host.
const WARNING: &str = "data that travels by RDMA is neither encrypted nor authenticated: \
     use RDMA only on a network that no other machine can reach";

/// Warns, once per process.
#[cfg_attr(not(feature = "rdma"), expect(dead_code, reason = "only racks over RDMA need it"))]
pub(crate) fn warn() {
    static WARNED: Once = Once::new();
    warn_once(&WARNED, &mut io::stderr());
}

/// Gives the warning the first time it is called with `warned`: to the subscriber of `tracing` if
/// the program has set one, otherwise to `errors`.
fn warn_once(warned: &Once, errors: &mut impl Write) {
    warned.call_once(|| {
        if tracing::dispatcher::has_been_set() {
            tracing::warn!("{WARNING}");
        } else {
            // A host whose standard error is closed still runs.
            let _ = writeln!(errors, "gossamer: warning: {WARNING}");
        }
    });
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing::field::{Field, Visit};
    use tracing::{Event, Level, Metadata, Subscriber, span};

    use super::*;

    /// Keeps the level and the text of every event.
    #[derive(Clone, Default)]
    struct Events(Arc<Mutex<Vec<(Level, String)>>>);

    impl Subscriber for Events {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &Event<'_>) {
            struct Text(String);

            impl Visit for Text {
                fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
                    self.0 = format!("{value:?}");
                }
            }

            let mut text = Text(String::new());
            event.record(&mut text);
            self.0.lock().push((*event.metadata().level(), text.0));
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    // One test, because whether a subscriber has been set is known of the whole process.
    #[test]
    fn the_warning_is_given_once_where_it_is_seen() {
        let (warned, mut errors) = (Once::new(), Vec::new());
        warn_once(&warned, &mut errors);
        warn_once(&warned, &mut errors);
        let errors = String::from_utf8(errors).expect("text");
        assert_eq!(errors, format!("gossamer: warning: {WARNING}\n"));

        let (events, warned, mut errors) = (Events::default(), Once::new(), Vec::new());
        tracing::subscriber::with_default(events.clone(), || {
            warn_once(&warned, &mut errors);
            warn_once(&warned, &mut errors);
        });
        assert_eq!(*events.0.lock(), [(Level::WARN, WARNING.to_owned())]);
        assert!(errors.is_empty(), "the warning is given in one place only");
    }
}
