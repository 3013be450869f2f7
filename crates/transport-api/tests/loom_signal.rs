//! Every interleaving of the shared-memory signal: a reader that sees the word of a signal sees every
//! earlier write, back and forth over one piece of memory. Run by
//! `RUSTFLAGS="--cfg loom" cargo test --release --test 'loom_*'`.
#![cfg(loom)]

use primitive::SharedBytes;
use primitive::sync::Ordering;

/// Copies `bytes` in with relaxed stores and signals with one release store.
fn write_and_signal(memory: &SharedBytes, bytes: &[u8], word: u64) {
    memory.write_from(8, bytes);
    memory.store(0, word, Ordering::Release);
}

/// What the payload is, if the signal `word` is there.
fn seen(memory: &SharedBytes, word: u64) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    (memory.load(0, Ordering::Acquire) == word).then(|| memory.read_into(8, &mut bytes))?;
    Some(bytes)
}

#[test]
fn a_signal_covers_the_writes_before_it() {
    loom::model(|| {
        let memory = SharedBytes::heap(24);
        let writer = {
            let memory = memory.clone();
            loom::thread::spawn(move || write_and_signal(&memory, &[7; 16], 1))
        };
        if let Some(bytes) = seen(&memory, 1) {
            assert_eq!(bytes, [7; 16]);
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_reply_in_place_is_whole_too() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let memory = SharedBytes::heap(24);
        let trustee = {
            let memory = memory.clone();
            loom::thread::spawn(move || {
                if let Some(request) = seen(&memory, 1) {
                    assert_eq!(request, [7; 16]);
                    write_and_signal(&memory, &request.map(|byte| byte + 1), 2);
                }
            })
        };
        write_and_signal(&memory, &[7; 16], 1);
        if let Some(reply) = seen(&memory, 2) {
            assert_eq!(reply, [8; 16]);
        }
        trustee.join().unwrap();
    });
}
