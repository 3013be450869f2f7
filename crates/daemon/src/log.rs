//! What a process of a job has said: the latest part of it, for who asks later, and its last words.

use crate::message::Stream;
use parking_lot::Mutex;
use std::collections::VecDeque;
use tokio::sync::watch;

/// Bytes that are kept of what a process says, with what it costs to keep them.
const KEPT: usize = 256 << 10;
/// Bytes that it costs to keep what was said at once, about.
const PART: usize = 64;
/// Bytes at the end in which last words are looked for.
const END: usize = 16 << 10;
/// Lines in a report.
const LAST_LINES: usize = 10;
/// Bytes of a line in a report.
const LONGEST_LINE: usize = 1 << 10;

/// What a process has said.
#[derive(Debug)]
pub(crate) struct Log {
    said: Mutex<Said>,
    /// Counts what was said, to wake those who follow.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Said {
    parts: VecDeque<(Stream, Vec<u8>)>,
    /// The number of the first of `parts`: how many were forgotten.
    first: u64,
    bytes: usize,
    has_ended: bool,
}

/// Where in a log somebody has got to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position(u64);

impl Default for Log {
    fn default() -> Self {
        Self { said: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Log {
    /// Takes what was said next.
    pub(crate) fn append(&self, stream: Stream, bytes: &[u8]) {
        let mut said = self.said.lock();
        said.parts.push_back((stream, bytes.to_vec()));
        said.bytes += bytes.len() + PART;
        while said.bytes > KEPT {
            let Some((_, forgotten)) = said.parts.pop_front() else { break };
            said.bytes -= forgotten.len() + PART;
            said.first += 1;
        }
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Notes that nothing more will be said.
    pub(crate) fn end(&self) {
        self.said.lock().has_ended = true;
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// What was said since `position`, which moves on; and whether that was all.
    pub(crate) fn since(&self, position: &mut Position) -> (Vec<(Stream, Vec<u8>)>, bool) {
        let said = self.said.lock();
        let skip = position.0.saturating_sub(said.first) as usize;
        position.0 = said.first + said.parts.len() as u64;
        (said.parts.iter().skip(skip).cloned().collect(), said.has_ended)
    }

    /// Tells when something is said. To be taken before the log is read.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The last lines of the standard error, or of the output if there are none; and the last panic
    /// among them.
    pub(crate) fn last_words(&self) -> (Vec<String>, Option<String>) {
        let of = |wanted| lines(&self.tail(wanted));
        let errors = of(Stream::Err);
        let panic = panic_in(&errors);
        let mut lines = if errors.is_empty() { of(Stream::Out) } else { errors };
        lines.drain(..lines.len().saturating_sub(LAST_LINES));
        (lines, panic)
    }

    fn tail(&self, wanted: Stream) -> Vec<u8> {
        let said = self.said.lock();
        let mut bytes = 0;
        let parts = said.parts.iter().rev().filter(|(stream, _)| *stream == wanted);
        let mut parts: Vec<_> = parts
            .take_while(|(_, part)| {
                let is_near = bytes < END;
                bytes += part.len();
                is_near
            })
            .collect();
        parts.reverse();
        parts.into_iter().flat_map(|(_, part)| part).copied().collect()
    }
}

fn lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(END)..]).into_owned();
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| line[..line.floor_char_boundary(LONGEST_LINE)].to_owned()).collect()
}

/// `thread 'main' panicked at src/main.rs:2:5: the message`.
fn panic_in(lines: &[String]) -> Option<String> {
    let at = lines
        .iter()
        .rposition(|line| line.starts_with("thread '") && line.contains(" panicked at "))?;
    // What it says stands on the line below.
    let message = lines.get(at + 1).filter(|line| !line.starts_with("note: "));
    let place = &lines[at];
    Some(message.map_or_else(|| place.clone(), |message| format!("{place} {message}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_part_is_kept() {
        let log = Log::default();
        let part = vec![b'x'; KEPT / 4 - PART];
        let mut position = Position::default();
        log.append(Stream::Out, b"first");
        assert_eq!(log.since(&mut position).0.len(), 1);
        assert_eq!(log.since(&mut position).0.len(), 0);
        for _ in 0..100 {
            log.append(Stream::Out, &part);
        }
        log.end();
        let (parts, has_ended) = log.since(&mut position);
        assert_eq!(parts.len(), 4, "what was forgotten is passed over");
        assert!(has_ended);
        assert!(log.since(&mut position).0.is_empty());
    }

    #[test]
    fn many_small_parts_are_not_all_kept() {
        let log = Log::default();
        (0..KEPT).for_each(|_| log.append(Stream::Out, b"x"));
        let (parts, _) = log.since(&mut Position::default());
        assert_eq!(parts.len(), KEPT / (PART + 1));
    }

    #[test]
    fn a_panic_is_found_with_its_message() {
        let log = Log::default();
        log.append(Stream::Out, b"result: 7\n");
        log.append(Stream::Err, b"starting\nthread 'main' (7) panicked at src/main.rs:");
        log.append(Stream::Err, b"2:5:\nindex out of bounds\nnote: run with RUST_BACKTRACE=1\n");
        let (lines, panic) = log.last_words();
        let expected = "thread 'main' (7) panicked at src/main.rs:2:5: index out of bounds";
        assert_eq!(panic.as_deref(), Some(expected));
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn a_long_line_is_cut() {
        let log = Log::default();
        // What is no text grows as it becomes some.
        log.append(Stream::Err, "thread 'main' panicked at src/main.rs:\n".as_bytes());
        log.append(Stream::Err, &[0xff; END / 2]);
        let (lines, panic) = log.last_words();
        assert_eq!(lines[1].chars().count(), LONGEST_LINE / 3, "{lines:?}");
        assert!(panic.unwrap().len() < 2 * LONGEST_LINE);
    }

    #[test]
    fn without_errors_the_output_has_the_last_words() {
        let log = Log::default();
        for number in 0..100 {
            log.append(Stream::Out, format!("line {number}\n").as_bytes());
        }
        let (lines, panic) = log.last_words();
        assert_eq!((lines.len(), lines[9].as_str(), panic), (10, "line 99", None));
    }
}
