//! [`Log`]: the recent output of a process of a job, for `gossamer logs` and for the report of its
//! end.

use std::collections::VecDeque;

use daemon_protocol::Stream;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Bytes of output that a log holds, including the overhead of its parts.
const CAPACITY: usize = 256 << 10;
/// The overhead of a part in bytes, roughly.
const PART: usize = 64;
/// Bytes at the end of a log that are searched for the last lines and a panic.
const END: usize = 16 << 10;
/// Lines in a report.
const LAST_LINES: usize = 10;
/// Bytes of a line in a report.
const LONGEST_LINE: usize = 1 << 10;

/// The recent output of a process.
#[derive(Debug)]
pub(crate) struct Log {
    contents: Mutex<Contents>,
    /// Counts the parts, to wake followers.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Contents {
    parts: VecDeque<(Stream, Vec<u8>)>,
    /// The number of the first of `parts`, which is how many were dropped before.
    first: u64,
    bytes: usize,
    has_ended: bool,
}

/// A reader's position in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(u64);

impl Position {
    /// The position after all future output.
    pub(crate) const MAX: Self = Self(u64::MAX);
}

impl Default for Log {
    fn default() -> Self {
        Self { contents: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Log {
    /// Appends output.
    pub(crate) fn append(&self, stream: Stream, bytes: &[u8]) {
        let mut contents = self.contents.lock();
        contents.parts.push_back((stream, bytes.to_vec()));
        contents.bytes += bytes.len() + PART;
        while contents.bytes > CAPACITY {
            let Some((_, forgotten)) = contents.parts.pop_front() else { break };
            contents.bytes -= forgotten.len() + PART;
            contents.first += 1;
        }
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Notes the end of the output.
    pub(crate) fn end(&self) {
        self.contents.lock().has_ended = true;
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Whether the output has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.contents.lock().has_ended
    }

    /// The position after the output so far.
    pub(crate) fn end_position(&self) -> Position {
        let contents = self.contents.lock();
        Position(contents.first + contents.parts.len() as u64)
    }

    /// The part at `position`, which advances past it; `None` at `last`, and where there is no
    /// output yet. Parts that were dropped are skipped. One part at a time, so that a reader costs
    /// no copy of the log.
    pub(crate) fn next(
        &self,
        position: &mut Position,
        last: Position,
    ) -> Option<(Stream, Vec<u8>)> {
        let contents = self.contents.lock();
        let next = Position(position.0.max(contents.first));
        if next >= last {
            return None;
        }
        let part = contents.parts.get((next.0 - contents.first) as usize)?.clone();
        *position = Position(next.0 + 1);
        Some(part)
    }

    /// Notifies of new output. Subscribe before reading the log.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The last lines of the standard error, or of the output if it is empty; and the last panic
    /// among them.
    pub(crate) fn last_lines_and_panic(&self) -> (Vec<String>, Option<String>) {
        let of = |wanted| lines(&self.tail(wanted));
        let errors = of(Stream::Err);
        let panic = panic_in(&errors);
        let mut lines = if errors.is_empty() { of(Stream::Out) } else { errors };
        lines.drain(..lines.len().saturating_sub(LAST_LINES));
        (lines, panic)
    }

    fn tail(&self, wanted: Stream) -> Vec<u8> {
        let contents = self.contents.lock();
        let mut bytes = 0;
        let parts = contents.parts.iter().rev().filter(|(stream, _)| *stream == wanted);
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
    // The message stands on the line below.
    let message = lines.get(at + 1).filter(|line| !line.starts_with("note: "));
    let place = &lines[at];
    Some(message.map_or_else(|| place.clone(), |message| format!("{place} {message}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of parts from `position` on; advances `position` past them.
    fn count(log: &Log, position: &mut Position) -> usize {
        std::iter::from_fn(|| log.next(position, Position::MAX)).count()
    }

    #[test]
    fn the_latest_part_is_kept() {
        let log = Log::default();
        let part = vec![b'x'; CAPACITY / 4 - PART];
        let mut position = Position::default();
        log.append(Stream::Out, b"first");
        assert_eq!(count(&log, &mut position), 1);
        assert_eq!(count(&log, &mut position), 0);
        for _ in 0..100 {
            log.append(Stream::Out, &part);
        }
        assert!(!log.has_ended());
        log.end();
        assert_eq!(count(&log, &mut position), 4, "what was forgotten is passed over");
        assert!(log.has_ended());
        assert_eq!(count(&log, &mut position), 0);
    }

    #[test]
    fn a_reader_can_stop_where_the_log_ended_when_it_began() {
        let log = Log::default();
        log.append(Stream::Out, b"one");
        let (mut position, last) = (Position::default(), log.end_position());
        log.append(Stream::Out, b"two");
        assert_eq!(log.next(&mut position, last), Some((Stream::Out, b"one".to_vec())));
        assert_eq!(log.next(&mut position, last), None);
    }

    #[test]
    fn many_small_parts_are_not_all_kept() {
        let log = Log::default();
        (0..CAPACITY).for_each(|_| log.append(Stream::Out, b"x"));
        assert_eq!(count(&log, &mut Position::default()), CAPACITY / (PART + 1));
    }

    #[test]
    fn a_panic_is_found_with_its_message() {
        let log = Log::default();
        log.append(Stream::Out, b"result: 7\n");
        log.append(Stream::Err, b"starting\nthread 'main' (7) panicked at src/main.rs:");
        log.append(Stream::Err, b"2:5:\nindex out of bounds\nnote: run with RUST_BACKTRACE=1\n");
        let (lines, panic) = log.last_lines_and_panic();
        let expected = "thread 'main' (7) panicked at src/main.rs:2:5: index out of bounds";
        assert_eq!(panic.as_deref(), Some(expected));
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn a_long_line_is_cut() {
        let log = Log::default();
        // Bytes that are not UTF-8 take more space as text.
        log.append(Stream::Err, "thread 'main' panicked at src/main.rs:\n".as_bytes());
        log.append(Stream::Err, &[0xff; END / 2]);
        let (lines, panic) = log.last_lines_and_panic();
        assert_eq!(lines[1].chars().count(), LONGEST_LINE / 3, "{lines:?}");
        assert!(panic.unwrap().len() < 2 * LONGEST_LINE);
    }

    #[test]
    fn without_errors_the_output_has_the_last_lines_and_panic() {
        let log = Log::default();
        for number in 0..100 {
            log.append(Stream::Out, format!("line {number}\n").as_bytes());
        }
        let (lines, panic) = log.last_lines_and_panic();
        assert_eq!((lines.len(), lines[9].as_str(), panic), (10, "line 99", None));
    }
}
