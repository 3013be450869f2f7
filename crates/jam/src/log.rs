//! Where jams and rieds write lines to.

use std::io::{self, Write};
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
            Some(log) => {
                log(sender, line);
                true
            }
            None => false,
        }));
        match written {
            Ok(true) => {}
            // Without the lock: standard error may take its time. If it takes no more, the line is lost.
            Ok(false) => drop(io::stderr().write_all(on_stderr(sender, line).as_bytes())),
            Err(payload) => drop_payload(payload),
        }
    }
}

/// The line with its sender, as one line that controls no terminal.
fn on_stderr(sender: u32, line: &str) -> String {
    let from = if sender == NO_HOST { String::new() } else { format!(" from host {sender}") };
    let mut text = format!("jam{from}: ");
    for c in line.chars() {
        match c.is_control() {
            true => text.extend(c.escape_default()),
            false => text.push(c),
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_on_standard_error_is_one_line_and_names_its_sender() {
        assert_eq!(on_stderr(3, "so: \"ä\""), "jam from host 3: so: \"ä\"\n");
        assert_eq!(on_stderr(NO_HOST, "a\nb\x1b[2J"), "jam: a\\nb\\u{1b}[2J\n");
    }
}
