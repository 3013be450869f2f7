//! The state of one client's connection: input to read, the running batch, output to send.
//!
//! A connection runs one batch at a time, so commands take effect in the order they were sent.
//! While a batch runs, or its output waits for a slow reader, only a limited amount of input is
//! read, which bounds the memory of a connection and isolates the others.

use crate::memcached::batch::{Batch, OUTPUT_BYTES, Progress};
use crate::memcached::budget::{Budget, Reservation};
use crate::memcached::command::Command;
use crate::memcached::output::{Output, Shortage};
use crate::memcached::parser::{FREE_BYTES, Parser};

/// Maximum number of commands in a batch.
const BATCH_COMMANDS: usize = 64;

/// Maximum number of bytes read while a batch runs.
const READ_AHEAD_BYTES: usize = FREE_BYTES;

/// One client, without its socket.
///
/// ```
/// use gossamer_kv_store::memcached::{Connection, Output, Progress};
/// let mut connection = Connection::new();
/// connection.received(b"get a\r\nset b 0 0 1\r\n");
/// let batch = connection.next_batch().unwrap();
/// assert_eq!(batch.len(), 1); // the data of `b` has not arrived yet
/// let mut output = Output::default();
/// output.push(b"END\r\n");
/// connection.completed(Progress { output, ..Progress::default() });
/// assert_eq!(connection.output().to_vec(), b"END\r\n");
/// ```
#[derive(Debug, Default)]
pub struct Connection {
    parser: Parser,
    /// Memory for a long command, until it has run.
    input: Option<Reservation>,
    output: Output,
    /// Whether a batch is running.
    running: bool,
    /// The commands that the last batch did not run.
    remaining: Batch,
    /// Set while commands wait for the budget.
    shortage: Option<Shortage>,
    /// Whether the client has closed its side.
    ended: bool,
    /// Whether no further commands will run.
    closing: bool,
}

impl Connection {
    /// A new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether to read more input. If not, leave it in the socket, which applies back-pressure.
    pub fn wants_input(&self) -> bool {
        let idle = !self.running && self.remaining.is_empty() && self.output().len() < OUTPUT_BYTES;
        let wants = !self.closing && !self.ended;
        wants
            && self.input_shortage().is_none()
            && (idle || self.parser.buffered() < READ_AHEAD_BYTES)
    }

    /// Memory to reserve before more of an unfinished long command is read, unless it is there. Reserve
    /// it when the output is sent, not before: others may wait for the memory of the output.
    pub fn input_shortage(&self) -> Option<usize> {
        let needs = self.parser.needs();
        let has = self.input.as_ref().map_or(0, Reservation::bytes);
        (needs > has && !self.closing && !self.ended).then_some(needs)
    }

    /// Keeps memory for an unfinished long command until it has run.
    pub fn reserved_input(&mut self, reservation: Reservation) {
        self.input = Some(reservation);
    }

    /// Whether a long command holds memory, which others may wait for.
    pub fn holds_input(&self) -> bool {
        self.input.is_some()
    }

    /// Handles bytes read from the socket.
    pub fn received(&mut self, bytes: &[u8]) {
        if !self.closing {
            self.parser.feed(bytes);
        }
    }

    /// Handles the end of the input; complete commands still run. Call [`Connection::next_batch`]
    /// afterwards.
    pub fn input_ended(&mut self) {
        self.ended = true;
    }

    /// The commands to run next; `None` while a batch runs, while too much output is unsent, while
    /// the budget is exhausted, or if no command is complete. Pass the result of the batch to
    /// [`Connection::completed`].
    pub fn next_batch(&mut self) -> Option<Batch> {
        let blocked = self.shortage.is_some() || self.output().len() >= OUTPUT_BYTES;
        if self.running || blocked {
            return None;
        }
        let mut batch = std::mem::take(&mut self.remaining);
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
        if !self.running {
            // For its memory.
            self.remaining = batch;
            return None;
        }
        Some(batch)
    }

    /// Handles the result of a batch.
    pub fn completed(&mut self, progress: Progress) {
        self.running = false;
        self.remaining = progress.remaining;
        if self.remaining.is_empty() {
            // The next long command has to wait for its turn again.
            self.input = None;
        }
        self.shortage = progress.shortage;
        self.output.append(progress.output);
    }

    /// The memory that the next response needs, if commands wait for the budget.
    pub fn shortage(&self) -> Option<Shortage> {
        self.shortage
    }

    /// Ends the wait for the budget. Call [`Connection::next_batch`] afterwards.
    pub fn resume(&mut self) {
        self.shortage = None;
    }

    /// An empty output that is charged to `budget`, for the next batch.
    pub fn next_output(&mut self, budget: &Budget) -> Output {
        self.output.take_sent(budget).unwrap_or_else(|| Output::new(budget))
    }

    /// The unsent bytes.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Removes the first `bytes` bytes of the output, which were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.output.advance(bytes);
    }

    /// Whether the connection waits for its client: no batch runs or waits for the budget.
    pub fn is_idle(&self) -> bool {
        !self.running && self.shortage.is_none()
    }

    /// Whether the connection can be closed: the client asked for it or closed its side, and all
    /// earlier commands have responses.
    pub fn is_finished(&self) -> bool {
        self.closing && !self.running && self.remaining.is_empty() && self.output().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memcached::local::{LocalShards, NoServer};

    /// The responses to `input`, sent in chunks of `size`, for a client that reads at once.
    fn exchange(shards: &LocalShards, input: &[u8], size: usize) -> Vec<u8> {
        let mut connection = Connection::new();
        let mut responses = Vec::new();
        for piece in input.chunks(size).chain([&b""[..]]) {
            connection.received(piece);
            while let Some(batch) = connection.next_batch() {
                let budget = Budget::new(usize::MAX);
                let output = Output::new(&budget);
                connection.completed(batch.run(shards, &NoServer, 1_700_000_000, output));
                responses.extend_from_slice(&connection.output().to_vec());
                connection.sent(connection.output().len());
            }
        }
        responses
    }

    #[test]
    fn pipelined_commands_run_in_order_for_any_chunk_size() {
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
    fn large_retrievals_are_split_into_bounded_parts() {
        let shards = LocalShards::new(2, None);
        let value = "x".repeat(100_000);
        exchange(&shards, format!("set k 0 0 100000\r\n{value}\r\n").as_bytes(), usize::MAX);
        let mut connection = Connection::new();
        connection.received(format!("get {}\r\nversion\r\n", "k ".repeat(200)).as_bytes());
        let (mut parts, mut total) = (0, 0);
        while let Some(batch) = connection.next_batch() {
            assert!(!connection.wants_input() || connection.output().is_empty());
            let budget = Budget::new(usize::MAX);
            let output = Output::new(&budget);
            connection.completed(batch.run(&shards, &NoServer, 1_700_000_000, output));
            let length = connection.output().len();
            assert!(length < OUTPUT_BYTES + 110_000);
            assert!(connection.next_batch().is_none(), "nothing runs before the output is sent");
            connection.sent(length);
            (parts, total) = (parts + 1, total + length);
        }
        assert!(parts > 10 && total > 200 * 100_000, "{parts} parts, {total} bytes");
    }

    #[test]
    fn a_long_report_stays_within_the_budget() {
        let shards = LocalShards::new(2, None);
        exchange(&shards, b"stats detail on\r\n", usize::MAX);
        let gets = (0..3000).map(|number| format!("get {number:0>200}:k\r\n"));
        exchange(&shards, gets.collect::<String>().as_bytes(), usize::MAX);
        let budget = Budget::new(300_000);
        let mut connection = Connection::new();
        connection.received(b"stats detail dump\r\nversion\r\n");
        let mut report = Vec::new();
        while let Some(batch) = connection.next_batch() {
            let output = Output::new(&budget);
            connection.completed(batch.run(&shards, &NoServer, 1_700_000_000, output));
            assert_eq!(connection.shortage(), None);
            assert_eq!(budget.available(), 300_000 - connection.output().len());
            report.extend_from_slice(&connection.output().to_vec());
            connection.sent(connection.output().len());
        }
        let lines = (0..3000).map(|n| format!("PREFIX {n:0>200} get 1 hit 0 set 0 del 0\r\n"));
        let expected = lines.collect::<String>() + "END\r\n";
        let (report, version) = report.split_at(expected.len().min(report.len()));
        assert!(report == expected.as_bytes(), "{} bytes", report.len());
        assert!(version.starts_with(b"VERSION "));
    }

    #[test]
    fn a_batch_over_budget_resumes_where_it_stopped() {
        let shards = LocalShards::new(2, None);
        let value = "x".repeat(100_000);
        let input = format!("set k 0 0 100000\r\n{value}\r\nget k k k k k k\r\nversion\r\n");
        let expected = exchange(&shards, input.as_bytes(), usize::MAX);
        let budget = Budget::new(250_000);
        let mut connection = Connection::new();
        connection.received(input.as_bytes());
        let (mut responses, mut shortages) = (Vec::new(), 0);
        while let Some(batch) = connection.next_batch() {
            let progress = batch.run(&shards, &NoServer, 1_700_000_000, Output::new(&budget));
            connection.completed(progress);
            let held = 250_000 - budget.available();
            assert_eq!(held, connection.output().len(), "exactly the unsent bytes");
            if let Some(shortage) = connection.shortage() {
                assert!(connection.next_batch().is_none(), "nothing runs over budget");
                assert!(shortage.bytes > budget.available());
                shortages += 1;
                connection.resume();
            }
            responses.extend_from_slice(&connection.output().to_vec());
            connection.sent(connection.output().len());
        }
        assert!(responses == expected, "{} bytes, {} expected", responses.len(), expected.len());
        assert!(shortages >= 2, "{shortages} shortages");
        assert_eq!(budget.available(), 250_000);
    }

    #[test]
    fn a_connection_closes_after_its_last_response() {
        let shards = LocalShards::new(1, None);
        let mut connection = Connection::new();
        connection.received(b"version\r\nget ");
        connection.input_ended();
        let batch = connection.next_batch().unwrap();
        let budget = Budget::new(usize::MAX);
        assert!(!connection.wants_input() && !connection.is_finished());
        connection.completed(batch.run(&shards, &NoServer, 0, Output::new(&budget)));
        assert!(connection.next_batch().is_none());
        assert!(!connection.is_finished(), "the response is not sent yet");
        connection.sent(connection.output().len());
        assert!(connection.is_finished());
    }
}
