//! The body of a fuzz target: properties that hold for any bytes of a client.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which
//! run it on its committed corpus, `fuzz/corpus/memcached`.

use crate::memcached::budget::Budget;
use crate::memcached::connection::Connection;
use crate::memcached::local::LocalShards;
use crate::memcached::output::Output;
use crate::memcached::target::ServerState;
use crate::store::Settings;

/// The budget for responses: that of one batch, which is less than an input can request.
const BUDGET_BYTES: usize = 400 << 10;

/// Bytes of responses that are compared: a few bytes of input can request very many.
const COMPARED_BYTES: usize = 256 << 10;

struct NoServer;

impl ServerState for NoServer {
    fn stats(&self, _now: u64) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn start_crawl(&self, _settings: Settings) {}
}

/// Responses depend on the bytes that a client sends, not on chunk boundaries, and the whole budget
/// is released.
///
/// The first byte is the chunk size for the others.
///
/// # Panics
/// If a property does not hold.
pub fn memcached(data: &[u8]) {
    let Some((chunk, bytes)) = data.split_first() else { return };
    let whole = responses(bytes, bytes.len().max(1));
    assert_eq!(
        whole,
        responses(bytes, usize::from(*chunk).max(1)),
        "responses depend on chunk boundaries"
    );
}

/// The responses of a new server to `bytes`, sent in chunks, for a client that reads at once.
fn responses(bytes: &[u8], chunk: usize) -> Vec<u8> {
    let shards = LocalShards::new(2, Some(1 << 20));
    let budget = Budget::new(BUDGET_BYTES);
    let mut connection = Connection::new();
    let mut responses = Vec::new();
    let mut chunks = bytes.chunks(chunk);
    loop {
        match chunks.next() {
            Some(chunk) => connection.received(chunk),
            None => connection.input_ended(),
        }
        while responses.len() <= COMPARED_BYTES
            && let Some(batch) = connection.next_batch()
        {
            let output = Output::new(&budget);
            connection.completed(batch.run(&shards, &NoServer, 1_700_000_000, output));
            responses.extend_from_slice(&connection.output().to_vec());
            connection.sent(connection.output().len());
            // There is no other output, so the budget is available again.
            connection.resume();
        }
        if connection.is_finished() || responses.len() > COMPARED_BYTES {
            break;
        }
    }
    drop(connection);
    responses.truncate(COMPARED_BYTES);
    assert_eq!(budget.available(), BUDGET_BYTES, "a part of the budget is lost");
    responses
}

#[cfg(test)]
mod tests {
    use fuzz_corpus::Corpus;

    use super::*;

    const TARGET: &str = "memcached";

    #[test]
    fn the_corpus_does_no_harm() {
        Corpus::of(TARGET).run(memcached);
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-kv-store --lib write_seeds -- --ignored"]
    fn write_seeds() {
        let put = |name: &str, commands: &str| {
            Corpus::of(TARGET).write(name, format!("\x05{commands}"));
        };
        put(
            "storage",
            "set a 1 0 3\r\nabc\r\nadd a 0 0 1 noreply\r\nx\r\ncas a 0 0 1 1\r\ny\r\nget a\r\n",
        );
        put("retrieval", "set a 0 0 1\r\n1\r\ngets a b a\r\ngat 10 a\r\ngats -1 a b\r\nget a\r\n");
        put(
            "numbers",
            "set n 0 0 2\r\n10\r\nincr n 5\r\ndecr n 99 noreply\r\nget n\r\nincr n x\r\n",
        );
        put(
            "others",
            "touch a 5\r\ndelete a\r\nflush_all 10\r\nstats\r\nversion\r\nverbosity 1\r\nquit\r\n",
        );
        put(
            "meta",
            "ms a 3 c k Oz\r\nabc\r\nmg a v s t f h l\r\nma n N0 J5 v\r\nmd a I T5\r\nmg a v R9\r\nme a\r\nmn\r\n",
        );
        put(
            "meta-wrong",
            "ms a x\r\nms a 2 MX\r\nab\r\nmg Zm9v b k\r\nmg a a\r\nma a q\r\nms a 9999999\r\nmg\r\n",
        );
        put(
            "admin",
            "stats detail on\r\nget a:b\r\nstats detail dump\r\nstats sizes_enable\r\nstats items\r\n\
             stats slabs\r\nstats settings\r\nlru mode flat\r\nlru tune 1 2 3 4\r\nlru_crawler crawl all\r\n\
             cache_memlimit 8\r\n",
        );
        put("wrong", "set a 0 0 9999999\r\nnope\r\nset a 0 0 2\r\nabcd\r\nget\r\n \r\nset\r\n");
        let large = "x".repeat(17_000);
        put("large", &format!("set k 0 0 17000\r\n{large}\r\nget {}\r\n", "k ".repeat(12)));
    }
}
