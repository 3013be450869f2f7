//! What segments are compared with in one process: checked accesses to shared memory, atomics, and
//! copies.

use std::hint::black_box;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use primitive::SharedBytes;
use primitive::sync::Ordering as Order;
use transport_api::{Region, RegionKey, Rights, Transport};
use transport_shm::ShmTransport;

use crate::harness::{Case, Unit};
use crate::measure::sampling::CaseError;

/// Bytes within which operations on words go round, as those on segments do.
const WINDOW: usize = 4096;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Bytes that begin at a cache line, as the data of the segments does.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    part: Range<usize>,
}

impl Buffer {
    pub(super) fn new(len: usize) -> Buffer {
        let bytes = vec![7; len + LINE];
        let start = bytes.as_ptr().align_offset(LINE);
        Buffer { bytes, part: start..start + len }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.part.clone()]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.part.clone()]
    }
}

/// Memory that a transport would share, and what keeps it.
fn shared(bytes: usize) -> Result<(Region, SharedBytes), CaseError> {
    let failed = |e: &dyn std::fmt::Display| CaseError::Failed(format!("no shared memory: {e}"));
    let transport = ShmTransport::threads(1).map_err(|e| failed(&e))?;
    let region = transport.export(RegionKey(1), bytes, Rights::ALL.into());
    let region = region.map_err(|e| failed(&e))?;
    let memory = region.memory().clone();
    Ok((region, memory))
}

/// An operation on one word of shared memory after the other, each with its check that the word is
/// inside.
fn words(
    name: &'static str,
    operation: impl Fn(&SharedBytes, usize, u64) + Sync + 'static,
) -> Case {
    Case::new(name, Unit::Nanoseconds, move |sampler| {
        let (_region, memory) = shared(2 * WINDOW)?;
        sampler.single_thread(|thread| {
            thread.measure(|n| {
                for i in 0..n {
                    let at = black_box((i as usize * 8) % WINDOW);
                    operation(black_box(&memory), at, i);
                }
            });
        })
    })
}

/// A checked load from shared memory.
pub fn load() -> Case {
    words("local/load", |memory, at, _| {
        black_box(memory.load(at, Order::Relaxed));
    })
}

/// A checked store to shared memory.
pub fn store() -> Case {
    words("local/store", |memory, at, i| memory.store(at, black_box(i), Order::Relaxed))
}

/// A checked addition to a word of shared memory.
pub fn fetch_add() -> Case {
    words("local/fetch_add", |memory, at, _| {
        black_box(memory.word(at).fetch_add(1, Order::AcqRel));
    })
}

/// A checked load of an element of a slice of atomics, which is what Rust has for memory that
/// others change.
pub fn slice_load() -> Case {
    slice("local/slice of atomics, load", |word, _| {
        black_box(word.load(Ordering::Relaxed));
    })
}

/// The same with a store.
pub fn slice_store() -> Case {
    slice("local/slice of atomics, store", |word, i| word.store(i, Ordering::Relaxed))
}

fn slice(name: &'static str, operation: impl Fn(&AtomicU64, u64) + Sync + 'static) -> Case {
    Case::new(name, Unit::Nanoseconds, move |sampler| {
        let words: Vec<AtomicU64> = (0..WINDOW / 8).map(|_| AtomicU64::new(0)).collect();
        sampler.single_thread(|thread| {
            thread.measure(|n| {
                let words = black_box(&words[..]);
                for i in 0..n {
                    let at = black_box(i as usize % (WINDOW / 8));
                    operation(&words[at], black_box(i));
                }
            });
        })
    })
}

/// A swap of a word of shared memory that is as expected.
pub fn compare_swap() -> Case {
    Case::new("local/compare_swap", Unit::Nanoseconds, |sampler| {
        let (_region, memory) = shared(2 * WINDOW)?;
        sampler.single_thread(|thread| {
            let mut value = 0;
            thread.measure(|n| {
                for _ in 0..n {
                    let word = black_box(&memory).word(black_box(0));
                    let swap =
                        word.compare_exchange(value, value + 1, Order::AcqRel, Order::Acquire);
                    value = black_box(swap).map_or_else(|old| old, |old| old + 1);
                }
            });
        })
    })
}

/// Loads of words of shared memory, each where the word before says.
pub fn chain() -> Case {
    Case::new("local/load, where the last one says", Unit::Nanoseconds, |sampler| {
        let (_region, memory) = shared(2 * WINDOW)?;
        let words = WINDOW / 8;
        for word in 0..words {
            memory.store(word * 8, ((word + 187) % words * 8) as u64, Order::Relaxed);
        }
        sampler.single_thread(|thread| {
            let mut at = 0;
            thread.measure(|n| {
                for _ in 0..n {
                    at = memory.load(at, Order::Relaxed) as usize;
                }
            });
            black_box(at);
        })
    })
}

/// One copy of this many bytes from one place of memory to another, by `memcpy`: nanoseconds.
pub fn memcpy(bytes: usize) -> Case {
    copy(bytes, Unit::Nanoseconds)
}

/// The same, in gigabytes a second.
pub fn memcpy_rate(bytes: usize) -> Case {
    copy(bytes, Unit::GigabytesPerSecond)
}

fn copy(bytes: usize, unit: Unit) -> Case {
    Case::new(format!("memcpy, {}", size(bytes)), unit, move |sampler| {
        let (from, mut to) = (Buffer::new(bytes), Buffer::new(bytes));
        let mut reading = sampler.single_thread(|thread| {
            thread.measure(|n| {
                for _ in 0..n {
                    black_box(&mut *to).copy_from_slice(black_box(&from));
                }
            });
        })?;
        if unit == Unit::GigabytesPerSecond {
            reading.value = bytes as f64 / reading.value;
        }
        Ok(reading)
    })
}

/// A number of bytes in words.
pub fn size(bytes: usize) -> String {
    if bytes >= 1024 && bytes.is_multiple_of(1024) {
        format!("{} KiB", bytes / 1024)
    } else {
        format!("{bytes} bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!(
            [8, 64, 1024, 4096, 5000].map(size),
            ["8 bytes", "64 bytes", "1 KiB", "4 KiB", "5000 bytes"]
        );
    }
}
