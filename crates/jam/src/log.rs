//! Where jams and rieds write lines to.

use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::RwLock;
use primitive::drop_payload;

/// Where lines go that jams and rieds write to the receiver's log: with the number of the sending
/// host, as it says.
pub type Log = dyn Fn(u32, &str) + Send + Sync;

/// The sending host of what a program does itself.
pub(crate) const NO_HOST: u32 = u32::MAX;

/// The log of a receiver: standard error, if its program has set none.
#[derive(Default)]
pub(crate) struct LogSlot(RwLock<Option<Box<Log>>>);

impl LogSlot {
    pub(crate) fn set(&self, log: impl Fn(u32, &str) + Send + Sync + 'static) {
        *self.0.write() = Some(Box::new(log));
    }

    /// Writes a line. A panic of the log ends here: it must not unwind through the jam or ried that wrote.
    pub(crate) fn write(&self, sender: u32, line: &str) {
        let written = catch_unwind(AssertUnwindSafe(|| match &*self.0.read() {
            Some(log) => log(sender, line),
            None if sender == NO_HOST => eprintln!("jam: {line}"),
            None => eprintln!("jam from host {sender}: {line}"),
        }));
        if let Err(payload) = written {
            drop_payload(payload);
        }
    }
}
