//! One client's connection: what may be read, what is being run, what waits to be sent.
//!
//! At most one batch of a connection runs at a time, so commands take effect in the order they were
//! sent. While it runs, or while its output waits for a slow reader, only a little more input is
//! taken; so what one connection holds stays bounded, and the others never notice.

use crate::memcached::batch::{Batch, OUTPUT_BYTES, Progress};
use crate::memcached::command::Command;
use crate::memcached::output::{Output, Shortage};
use crate::memcached::parser::Parser;

/// Commands of one batch, at most.
const BATCH_COMMANDS: usize = 64;

/// Bytes of input that are taken while a batch runs.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// One client, without its socket.
///
/// ```
/// use gossamer_kv::memcached::{Connection, Output, Progress};
/// let mut connection = Connection::new();
/// connection.received(b"get a\r\nset b 0 0 1\r\n");
/// let batch = connection.next_batch().unwrap();
/// assert_eq!(batch.len(), 1); // the data of `b` is not here yet
/// let mut output = Output::default();
/// output.push(b"END\r\n");
/// connection.completed(Progress { output, ..Progress::default() });
/// assert_eq!(connection.output().to_vec(), b"END\r\n");
/// ```
#[derive(Debug, Default)]
pub struct Connection {
    parser: Parser,
    output: Output,
    /// A batch is under way.
    running: bool,
    /// What a batch left to run when its output had grown enough or found no room.
    rest: Batch,
    /// Nothing runs until there is room for this many bytes.
    shortage: Option<Shortage>,
    /// The client sends no more.
    ended: bool,
    /// No command will be run after those under way.
    closing: bool,
}

impl Connection {
    /// A connection that was just accepted.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether more input would be used. When not, leave it in the socket, so that the client
    /// notices.
    pub fn wants_input(&self) -> bool {
        let idle = !self.running && self.rest.is_empty() && self.output().len() < OUTPUT_BYTES;
        !self.closing && !self.ended && (idle || self.parser.buffered() < READ_AHEAD_BYTES)
    }

    /// Takes bytes from the socket.
    pub fn received(&mut self, bytes: &[u8]) {
        if !self.closing {
            self.parser.feed(bytes);
        }
    }

    /// The client will send no more; the complete commands it sent are still answered. ScanRequest for
    /// [`Connection::next_batch`] afterwards.
    pub fn input_ended(&mut self) {
        self.ended = true;
    }

    /// The commands to run next; `None` while a batch runs, while the client is behind with
    /// reading, while there is no room for answers, or when there is no complete command. The batch
    /// must come back through [`Connection::completed`].
    pub fn next_batch(&mut self) -> Option<Batch> {
        let held_up = self.shortage.is_some() || self.output().len() >= OUTPUT_BYTES;
        if self.running || held_up {
            return None;
        }
        let mut batch = std::mem::take(&mut self.rest);
        while batch.len() < BATCH_COMMANDS && !self.closing {
            match self.parser.next_command() {
                Some(Command::Close) => self.closing = true,
                Some(command) => batch.push(command),
                None => {
                    self.closing |= self.ended;
                    break;
                }
            }
        }
        self.running = !batch.is_empty();
        self.running.then_some(batch)
    }

    /// Takes back what came of a batch.
    pub fn completed(&mut self, progress: Progress) {
        self.running = false;
        self.rest = progress.rest;
        self.shortage = progress.shortage;
        self.output.append(progress.output);
    }

    /// The room that answers need before anything more is run, if they lack it.
    pub fn shortage(&self) -> Option<Shortage> {
        self.shortage
    }

    /// There is room for answers again. ScanRequest for [`Connection::next_batch`] afterwards.
    pub fn resume(&mut self) {
        self.shortage = None;
    }

    /// Bytes that wait to be sent.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Says that so many bytes of the output are sent.
    pub fn sent(&mut self, bytes: usize) {
        self.output.advance(bytes);
    }

    /// Whether the client is waited for: nothing runs, and nothing waits for room.
    pub fn is_idle(&self) -> bool {
        !self.running && self.shortage.is_none()
    }

    /// Whether the connection can be closed: the client asked for it or is gone, and everything
    /// before that is answered.
    pub fn is_finished(&self) -> bool {
        self.closing && !self.running && self.rest.is_empty() && self.output().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memcached::batch::ServerStats;
    use crate::memcached::local::LocalShards;
    use crate::memcached::output::Budget;

    struct NoServerStats;

    impl ServerStats for NoServerStats {
        fn server_stats(&self, _now: u64) -> Vec<(&'static str, String)> {
            Vec::new()
        }
    }

    /// What a client that reads everything at once gets for `input`, cut into pieces of `size`.
    fn exchange(shards: &LocalShards, input: &[u8], size: usize) -> Vec<u8> {
        let mut connection = Connection::new();
        let mut answers = Vec::new();
        for piece in input.chunks(size).chain([&b""[..]]) {
            connection.received(piece);
            while let Some(batch) = connection.next_batch() {
                let budget = Budget::new(usize::MAX);
                connection.completed(batch.run(shards, &NoServerStats, 1_700_000_000, &budget));
                answers.extend_from_slice(&connection.output().to_vec());
                connection.sent(connection.output().len());
            }
        }
        answers
    }

    #[test]
    fn pipelined_commands_are_answered_in_order_however_they_are_cut() {
        let input: Vec<u8> = (0..500)
            .flat_map(|i| {
                format!("set k{i} 0 0 2\r\nab\r\nget k{i} k0\r\nincr n 1\r\n").into_bytes()
            })
            .chain(*b"set n 0 0 1\r\n0\r\nincr n 1\r\nquit\r\nget n\r\n")
            .collect();
        let expected = exchange(&LocalShards::new(3, None), &input, usize::MAX);
        assert!(expected.ends_with(b"NOT_FOUND\r\nSTORED\r\n1\r\n"));
        for size in [1, 2, 7, 1000] {
            assert_eq!(exchange(&LocalShards::new(3, None), &input, size), expected);
        }
    }

    #[test]
    fn a_retrieval_of_much_data_comes_in_parts_that_stay_small() {
        let shards = LocalShards::new(2, None);
        let value = "x".repeat(100_000);
        exchange(&shards, format!("set k 0 0 100000\r\n{value}\r\n").as_bytes(), usize::MAX);
        let mut connection = Connection::new();
        connection.received(format!("get {}\r\nversion\r\n", "k ".repeat(200)).as_bytes());
        let (mut parts, mut total) = (0, 0);
        while let Some(batch) = connection.next_batch() {
            assert!(!connection.wants_input() || connection.output().is_empty());
            let budget = Budget::new(usize::MAX);
            connection.completed(batch.run(&shards, &NoServerStats, 1_700_000_000, &budget));
            let length = connection.output().len();
            assert!(length < OUTPUT_BYTES + 110_000);
            assert!(connection.next_batch().is_none(), "nothing runs before the client has read");
            connection.sent(length);
            (parts, total) = (parts + 1, total + length);
        }
        assert!(parts > 10 && total > 200 * 100_000, "{parts} parts, {total} bytes");
    }

    #[test]
    fn a_batch_without_room_goes_on_where_it_stopped() {
        let shards = LocalShards::new(2, None);
        let value = "x".repeat(100_000);
        let input = format!("set k 0 0 100000\r\n{value}\r\nget k k k k k k\r\nversion\r\n");
        let expected = exchange(&shards, input.as_bytes(), usize::MAX);
        let budget = Budget::new(250_000);
        let mut connection = Connection::new();
        connection.received(input.as_bytes());
        let (mut answers, mut shortages) = (Vec::new(), 0);
        while let Some(batch) = connection.next_batch() {
            let progress = batch.run(&shards, &NoServerStats, 1_700_000_000, &budget);
            connection.completed(progress);
            let held = 250_000 - budget.available();
            assert_eq!(held, connection.output().len(), "no more than what waits to be sent");
            if let Some(shortage) = connection.shortage() {
                assert!(connection.next_batch().is_none(), "nothing runs without room");
                assert!(shortage.bytes > budget.available());
                shortages += 1;
                connection.resume();
            }
            answers.extend_from_slice(&connection.output().to_vec());
            connection.sent(connection.output().len());
        }
        assert!(answers == expected, "{} bytes, {} expected", answers.len(), expected.len());
        assert!(shortages >= 2, "{shortages} shortages");
        assert_eq!(budget.available(), 250_000);
    }

    #[test]
    fn a_connection_ends_after_its_last_answer() {
        let shards = LocalShards::new(1, None);
        let mut connection = Connection::new();
        connection.received(b"version\r\nget ");
        connection.input_ended();
        let batch = connection.next_batch().unwrap();
        assert!(!connection.wants_input() && !connection.is_finished());
        connection.completed(batch.run(&shards, &NoServerStats, 0, &Budget::new(usize::MAX)));
        assert!(connection.next_batch().is_none());
        assert!(!connection.is_finished(), "the answer is not sent yet");
        connection.sent(connection.output().len());
        assert!(connection.is_finished());
    }
}
