//! What the steps of a first arrival take, and those of a call.

use super::*;

#[test]
#[ignore = "prints figures: cargo test --release -p gossamer-jam --lib figures -- --ignored --nocapture"]
fn figures() {
    use std::hint::black_box;
    use std::time::Instant;
    fn median(name: &str, count: u32, mut run: impl FnMut()) {
        let mut times: Vec<f64> = (0..41)
            .map(|_| {
                let start = Instant::now();
                (0..count).for_each(|_| run());
                start.elapsed().as_nanos() as f64 / f64::from(count)
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{:9.1} ns (least {:9.1})  {name}", times[20], times[0]);
    }
    // 560 bytes, more than Indirect Put has.
    let mut text = import().to_vec();
    text.resize(380, 0xcc);
    let numbered = |number: u64| {
        let mut data = [0; 64];
        data[56..].copy_from_slice(&number.to_le_bytes());
        let imports = [
            Import { name: "receiver_test_add", signature: add_signature() },
            Import { name: "strlen", signature: 0 },
        ];
        Blob { imports: &imports, data: &data, ..blob(&text) }.encode().unwrap()
    };
    let blobs: Vec<Vec<u8>> = (0..200).map(numbered).collect();
    let digests: Vec<Digest> = blobs.iter().map(|blob| Digest::of(blob)).collect();
    println!("blob of {} bytes", blobs[0].len());
    median("digest", 500, || {
        black_box(Digest::of(black_box(&blobs[0])));
    });
    median("parse", 500, || {
        black_box(jam_format::Parsed::parse(black_box(&blobs[0]))).unwrap();
    });
    // One for each round, with its first chunk there.
    let first = blob(sum()).encode().unwrap();
    let receivers: Vec<_> = (0..41).map(|_| open_receiver(CHUNKS)).collect();
    receivers.iter().for_each(|receiver| assert!(receive(receiver, &first).is_ok()));
    let mut arrivals = receivers.iter().flat_map(|receiver| {
        blobs.iter().zip(&digests).map(move |(blob, digest)| (receiver, blob, digest))
    });
    median("receive: parse, digest, link", 200, || {
        let (receiver, blob, digest) = arrivals.next().expect("one for each time");
        receiver.receive(blob, *digest).unwrap();
    });
    let receiver = receivers[0];
    let digest = receive(receiver, &blob(sum()).encode().unwrap()).unwrap();
    let mut property = 0;
    let (context, args, mut reply) = (receiver.context(5), [1, 0], [0; 2]);
    let mut call = call_of(&context, &mut property, &args, &[1; 3], &mut reply);
    // SAFETY: the jams of this file take such calls.
    median("a cached call: look up, enter, run", 10_000, || unsafe {
        receiver.run(black_box(&digest), SIGNATURE, black_box(&mut call)).unwrap();
    });
    let thread = Thread::current(receiver);
    median("of it: inside and look up", 10_000, || {
        let inside = thread.runner.enter();
        black_box(receiver.cache.find(black_box(&digest), &inside).is_some());
    });
    let inside = thread.runner.enter();
    let linked = receiver.cache.find(&digest, &inside).unwrap();
    // SAFETY: the jams of this file take such calls, and this thread is inside.
    median("of it: enter and run", 10_000, || unsafe {
        black_box(linked.run(black_box(&mut call)).is_ok());
    });
}
