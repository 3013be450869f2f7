//! What must hold for any packet that a process of the rack sends: the body of a fuzz target.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which
//! run it on its committed corpus, `fuzz/corpus/shm`.

use crate::message::{LARGEST, MOST_FILES, Message};

/// A packet that is understood is the only encoding of its message, fits where packets are received,
/// and comes with no more descriptors than are received.
///
/// # Panics
/// When that does not hold.
pub fn packet(data: &[u8]) {
    let Some(message) = Message::decode(data) else { return };
    assert_eq!(message.encode(), data, "a message has two encodings");
    assert!(data.len() <= LARGEST, "a packet of {} bytes", data.len());
    assert!(message.files() <= MOST_FILES, "{} descriptors", message.files());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::RegionInfo;
    use std::{fs, path::PathBuf};
    use transport_api::{HostId, RegionKey, Rights};

    fn corpus() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/shm")
    }

    #[test]
    fn the_corpus_does_no_harm() {
        let mut count = 0;
        for entry in fs::read_dir(corpus()).expect("a committed corpus") {
            let path = entry.expect("an entry").path();
            println!("{}", path.display());
            packet(&fs::read(path).expect("a seed"));
            count += 1;
        }
        assert!(count > 0, "no seeds");
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-transport-shm --lib write_seeds -- --ignored"]
    fn write_seeds() {
        fs::create_dir_all(corpus()).expect("a folder");
        let put = |name: &str, message: Message| {
            fs::write(corpus().join(name), message.encode()).expect("a seed");
        };
        let host = HostId(1);
        put("knock", Message::Knock { host, word: [9; 16] });
        put("hello", Message::Hello { version: 1, identity: [7; 32] });
        put("seat", Message::Seat { host, hosts: 2, threads: 3 });
        put("link", Message::Link { host, pid: 77 });
        put("greeting", Message::Greeting { host });
        put("alarms", Message::Alarms { count: 3 });
        put("import", Message::Import { id: 4, key: RegionKey(5), timeout: 1000 });
        put("none", Message::Export { id: 4, region: None });
        let region = Some(RegionInfo { rights: Rights::READ, generation: 3, len: 4096 });
        put("export", Message::Export { id: 4, region });
        put("goodbye", Message::Goodbye);
    }
}
