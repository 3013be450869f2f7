//! What must hold for any packet that a process of the rack sends: the body of a fuzz target.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which
//! run it on its committed corpus, `fuzz/corpus/shm`.

use crate::wire::packet::{MAX_FILES, PACKET_BYTES, Packet};

/// Bytes that decode are the only encoding of their packet, fit where packets are received,
/// and comes with no more descriptors than are received.
///
/// # Panics
/// When that does not hold.
pub fn packet(data: &[u8]) {
    let Ok(packet) = Packet::decode(data) else { return };
    assert_eq!(packet.encode(), data, "a packet has two encodings");
    assert!(data.len() <= PACKET_BYTES, "a packet of {} bytes", data.len());
    assert!(packet.files() <= MAX_FILES, "{} descriptors", packet.files());
}

#[cfg(test)]
mod tests {
    use fuzz_corpus::Corpus;
    use transport_api::{HostId, RegionKey, Rights};
    use transport_control::{Descriptor, Message, Opaque, Refusal};

    use super::*;

    const TARGET: &str = "shm";

    #[test]
    fn the_corpus_does_no_harm() {
        Corpus::of(TARGET).run(packet);
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-transport-shm --lib write_seeds -- --ignored"]
    fn write_seeds() {
        let put = |name: &str, packet: Packet| {
            Corpus::of(TARGET).write(name, packet.encode());
        };
        let (host, number, key) = (HostId(1), 4, RegionKey(5));
        put("join", Packet::Join { host, token: [9; 16] });
        put("hello", Packet::Hello { version: 1, identity: [7; 32] });
        put("rank", Packet::Rank { host, hosts: 2, threads: 3 });
        put("peer", Packet::Peer { host, pid: 77 });
        put("memory", Packet::Memory { host });
        put("alarms", Packet::Alarms { count: 3 });
        let control = |name: &str, message| put(name, Packet::Control(message));
        control("import", Message::Import { number, key, timeout: 1000 });
        control("refused", Message::Refused { number, refusal: Refusal::Unknown });
        let (rights, opaque) = (Rights::READ, Opaque::EMPTY);
        let region = Descriptor { generation: 3, rights, len: 4096, opaque };
        control("imported", Message::Imported { number, region });
        control("revoke", Message::Revoke { number, key, generation: 3 });
        control("given-up", Message::GivenUp("it broke the protocol".into()));
        control("leave", Message::Leave);
    }
}
