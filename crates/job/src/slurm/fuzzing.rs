//! What must hold for any message of a task of another Slurm step: the body of a fuzz target.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which
//! run it on its committed corpus, `fuzz/corpus/slurm`.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::slurm::nodes;
use crate::slurm::rendezvous::{Answer, Introduction, channel};

/// A message of the rendezvous is decoded whole or refused, and encodes to what decodes to the same;
/// a list of nodes is expanded to names that are not empty.
///
/// The first byte selects which of them is decoded.
///
/// # Panics
/// When that does not hold.
pub fn slurm(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 3 {
        0 => message::<Introduction>(bytes),
        1 => message::<Answer>(bytes),
        _ => {
            let Ok(list) = std::str::from_utf8(bytes) else { return };
            let Ok(nodes) = nodes::expand(list) else { return };
            assert!(nodes.iter().all(|node| !node.is_empty()), "a node without a name in {list:?}");
        }
    }
}

fn message<T: Serialize + DeserializeOwned>(mut bytes: &[u8]) {
    let Ok(message) = channel::receive::<T>(&mut bytes) else { return };
    let mut sent = Vec::new();
    channel::send(&mut sent, &message).expect("a vector takes everything");
    let again: T = channel::receive(&mut &sent[..]).expect("what is sent is read");
    let mut sent_again = Vec::new();
    channel::send(&mut sent_again, &again).expect("a vector takes everything");
    assert_eq!(sent, sent_again, "a message has lost something");
}

#[cfg(test)]
mod tests {
    use fuzz_corpus::Corpus;

    use super::*;
    use crate::description::JobHost;

    const TARGET: &str = "slurm";

    #[test]
    fn the_corpus_does_no_harm() {
        Corpus::of(TARGET).run(slurm);
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-job --lib write_seeds -- --ignored"]
    fn write_seeds() {
        let put = |name: &str, kind: u8, write: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = vec![kind];
            write(&mut bytes);
            Corpus::of(TARGET).write(name, bytes);
        };
        let me = Introduction { rank: 1, tasks: 2, node: "node1".into(), threads: 24, port: 4000 };
        put("introduction", 0, &|out| channel::send(out, &me).expect("a message"));
        let address = "127.0.0.1:4000".parse().expect("an address");
        let hosts = Answer::Hosts(vec![JobHost { name: "node1".into(), address, threads: 24 }]);
        put("hosts", 1, &|out| channel::send(out, &hosts).expect("a message"));
        let refused = Answer::Refused("a step of 3 tasks".into());
        put("refused", 1, &|out| channel::send(out, &refused).expect("a message"));
        put("nodes", 2, &|out| out.extend_from_slice(b"a[01-03,7],b,rack-[1-2]x"));
    }
}
