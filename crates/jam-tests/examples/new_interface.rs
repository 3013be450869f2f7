//! A host gets an interface that it was not built with: the second use of rieds in the paper.
//!
//! No process of this program can count words. A ried brings functions for it to one host, with the
//! table that they count in; jams call them there, and are refused everywhere else. Only host 0 has the
//! package, as bytes: it could as well have come over the network.
//!
//! `cargo run --release -p gossamer-jam-tests --example new_interface` runs two hosts on this machine.

use gossamer::jam::{
    self, Inject, JamError, LoadedJam, Package, Policy, Refusal, load_ried, receiver,
};
use gossamer::{Rack, RackError, Trust, threads};
use gossamer_jam_tests::INTERFACES;

/// What jams are sent to: anything will do, as the data is the ried's.
struct Anything;

jam::open! {
    Anything = "examples.Anything@1";
}

/// A jam with a text as its payload.
type OfText = LoadedJam<(), (), u8, u64>;

const TEXT: &str = "the loader maps what the signer signs and the jam calls what the loader maps";

fn main() -> Result<(), RackError> {
    let arguments = std::env::args().any(|word| word == "--hosts");
    let rack = Rack::from_args()?;
    let rack = if arguments { rack } else { rack.hosts(2) };
    receiver()
        .set_log(|host, line| println!("process {}, for host {host}: {line}", std::process::id()));
    // What its hosts run comes from a host of this rack, and none of their packages has it.
    rack.jams(Policy::AnyPeer).run(count)
}

/// On a rack whose hosts run its code: all of it.
pub(crate) fn count() {
    let package = Package::parse(INTERFACES).expect("a package");
    let jam = |name| OfText::from_blob(package.blob(name).expect("a jam")).expect("its types");
    let (count, word) = (jam("count_words"), jam("word"));
    let (first, last) = (threads().next().expect("a thread"), threads().last().expect("a thread"));
    let [here, there] = [first, last].map(|thread| thread.entrust_with(|()| Anything, ()));
    for host in [&here, &there] {
        println!("before: {}", refused(host, &count));
    }

    let counters = package.ried("counters").expect("a ried for this machine");
    let counters = load_ried(last, &counters).expect("a ried of mine");
    let words = there.inject(&count, (), TEXT.as_bytes()).expect("it counts words");
    let the = there.inject(&word, (), b"The").expect("it counts words");
    println!("{words} words, {the} of them \"the\"");
    assert_eq!((words, the), (15, 4));
    if first.thread().host != last.thread().host {
        println!("elsewhere: {}", refused(&here, &count));
    }

    assert!(counters.unload().expect("an answer"));
    println!("unloaded: {}", refused(&there, &word));
}

/// Why a jam is refused.
fn refused(host: &Trust<Anything>, jam: &OfText) -> Refusal {
    match host.inject(jam, (), b"words") {
        Err(JamError::Refused { source, .. }) => source,
        other => panic!("the host was not built with it: {other:?}"),
    }
}
