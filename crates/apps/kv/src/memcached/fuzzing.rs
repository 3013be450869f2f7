//! What must hold for any bytes that a client sends: the body of a fuzz target.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which
//! run it on its committed corpus, `fuzz/corpus/memcached`.

use crate::memcached::batch::ServerStats;
use crate::memcached::connection::Connection;
use crate::memcached::local::LocalShards;
use crate::memcached::output::Budget;

/// Room for answers: as much as one batch takes, which is less than one input can ask for.
const ROOM: usize = 400 << 10;

/// Bytes of answers that are looked at: a few bytes of input can ask for very many.
const ANSWERS: usize = 256 << 10;

struct NoServerStats;

impl ServerStats for NoServerStats {
    fn server_stats(&self, _now: u64) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Answers depend on the bytes that a client sends, not on how they are cut, and all the room that
/// answers took is given back.
///
/// The first byte is the size of the pieces into which the others are cut.
///
/// # Panics
/// When that does not hold.
pub fn memcached(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let whole = answers(bytes, bytes.len().max(1));
    assert_eq!(whole, answers(bytes, usize::from(*cut).max(1)), "it matters how commands are cut");
}

/// What a fresh server answers to `bytes`, read by a client that takes all at once.
fn answers(bytes: &[u8], cut: usize) -> Vec<u8> {
    let shards = LocalShards::new(2, Some(1 << 20));
    let budget = Budget::new(ROOM);
    let mut connection = Connection::new();
    let mut answers = Vec::new();
    let mut pieces = bytes.chunks(cut);
    loop {
        match pieces.next() {
            Some(piece) => connection.received(piece),
            None => connection.input_ended(),
        }
        while answers.len() <= ANSWERS
            && let Some(batch) = connection.next_batch()
        {
            connection.completed(batch.run(&shards, &NoServerStats, 1_700_000_000, &budget));
            answers.extend_from_slice(&connection.output().to_vec());
            connection.sent(connection.output().len());
            // Nothing else takes room, so that there is enough again.
            connection.resume();
        }
        if connection.is_finished() || answers.len() > ANSWERS {
            break;
        }
    }
    drop(connection);
    answers.truncate(ANSWERS);
    assert_eq!(budget.available(), ROOM, "room is lost");
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::PathBuf};

    fn corpus() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/memcached")
    }

    #[test]
    fn the_corpus_does_no_harm() {
        let mut count = 0;
        for entry in fs::read_dir(corpus()).expect("a committed corpus") {
            let path = entry.expect("an entry").path();
            println!("{}", path.display());
            memcached(&fs::read(path).expect("a seed"));
            count += 1;
        }
        assert!(count > 0, "no seeds");
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-kv --lib write_seeds -- --ignored"]
    fn write_seeds() {
        fs::create_dir_all(corpus()).expect("a folder");
        let put = |name: &str, commands: &str| {
            fs::write(corpus().join(name), format!("\x05{commands}")).expect("a seed");
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
        put("wrong", "set a 0 0 9999999\r\nnope\r\nset a 0 0 2\r\nabcd\r\nget\r\n \r\nset\r\n");
        let large = "x".repeat(17_000);
        put("large", &format!("set k 0 0 17000\r\n{large}\r\nget {}\r\n", "k ".repeat(12)));
    }
}
