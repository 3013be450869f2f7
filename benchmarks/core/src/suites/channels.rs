//! Channel servers: one thread owns the object and runs the section for requests that come in one
//! channel, and answers through another. The nearest relative of delegation with ordinary means.

use std::hint::black_box;

use bench_kit::harness::{Case, Unit};
use bench_kit::measure::watch::WaitMode;
use bench_kit::work::{Section, Think};

/// Requests in flight.
const WINDOW: u64 = 64;
/// Messages that a channel holds.
const CAPACITY: usize = 1024;

/// Both ends of a bounded channel.
pub(crate) trait Channel: Send {
    /// Its name, without the prefix `channel/`.
    const NAME: &'static str;

    /// A channel of `capacity` messages.
    fn bounded(capacity: usize) -> Self;

    /// The receiving end alone: it does not keep the channel open.
    fn receiver(&self) -> Self;

    /// Sends; false if the receiver is gone.
    fn send(&self, message: u64) -> bool;

    /// Receives; `None` if the sender is gone.
    fn receive(&self) -> Option<u64>;
}

macro_rules! channel {
    ($name:ident, $crate_name:ident, $text:literal) => {
        #[doc = concat!("A channel of the crate `", stringify!($crate_name), "`.")]
        #[derive(Debug)]
        pub(crate) struct $name<T>(Option<$crate_name::Sender<T>>, $crate_name::Receiver<T>);

        impl Channel for $name<u64> {
            const NAME: &'static str = $text;

            fn bounded(capacity: usize) -> Self {
                let (sender, receiver) = $crate_name::bounded(capacity);
                $name(Some(sender), receiver)
            }

            fn receiver(&self) -> Self {
                $name(None, self.1.clone())
            }

            #[inline(always)]
            fn send(&self, message: u64) -> bool {
                self.0.as_ref().is_some_and(|sender| sender.send(message).is_ok())
            }

            #[inline(always)]
            fn receive(&self) -> Option<u64> {
                self.1.recv().ok()
            }
        }
    };
}

channel!(Crossbeam, crossbeam_channel, "crossbeam, 64 in flight");
channel!(Flume, flume, "flume, 64 in flight");

/// One client with 64 requests in flight, and a server that owns the object.
pub(crate) fn server<C: Channel, S: Section>(think_ns: u32) -> Case {
    Case::new(format!("channel/{}", C::NAME), Unit::Mops, move |sampler| {
        let think = Think::of_ns(think_ns);
        let (requests, answers) = (C::bounded(CAPACITY), C::bounded(CAPACITY));
        let (inbox, outbox) = (requests.receiver(), answers.receiver());
        sampler.pair(
            WaitMode::Blocks,
            move |barrier| {
                let (mut done, mut seed) = (0, 1u64);
                let stop = barrier.wait();
                while !stop.is_set() {
                    for _ in 0..WINDOW {
                        requests.send(seed);
                        seed = think.work(seed.wrapping_add(1));
                    }
                    for _ in 0..WINDOW {
                        black_box(outbox.receive());
                    }
                    done += WINDOW;
                }
                done
            },
            move |barrier| {
                let mut object = S::fresh();
                barrier.wait();
                while let Some(seed) = inbox.receive() {
                    answers.send(object.run(seed));
                }
                0
            },
        )
    })
}
