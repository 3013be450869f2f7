//! Steps at random: whatever a peer does, the trustee goes on.

use proptest::prelude::*;

use crate::replies::apart;
use crate::scene::{Scene, Signal, Step, encoded, head};
use crate::victim::{PROPERTIES, fill_table};

fn any_head() -> impl Strategy<Value = u64> {
    let rarely = prop::bool::weighted(0.1);
    let sensible = (0..=PROPERTIES + 1, 0..60u32, 0..12usize, rarely, prop::bool::weighted(0.3))
        .prop_map(|(property, closure, words, bulk, is_run)| {
            head(property, closure, words, bulk) | u64::from(is_run) << 19
        });
    prop_oneof![4 => sensible, 1 => any::<u64>()]
}

fn any_words() -> impl Strategy<Value = Vec<u64>> {
    let apart =
        (0..16u64, 0..12usize, 0..700usize).prop_map(|(bits, at, len)| apart(bits, at, len));
    let word = prop_oneof![any_head(), apart, 0..9u64, any::<u64>(), Just(u64::MAX), Just(0)];
    // Some are what an encoded value begins with.
    let header = (0..80u64, 0..4u64).prop_map(|(body, fields)| fields << 32 | body);
    (any::<bool>(), header, any_head(), prop::collection::vec(word, 0..80)).prop_map(
        |(encoded, header, head, mut words)| {
            if encoded {
                words.splice(..0, [head, header]);
            }
            words
        },
    )
}

fn any_signal() -> impl Strategy<Value = Signal> {
    prop_oneof![
        6 => (0..30u16, 0..90u16).prop_map(|(requests, end)| Signal::Batch(requests, end)),
        1 => (any::<u16>(), any::<u16>()).prop_map(|(requests, end)| Signal::Batch(requests, end)),
        1 => any::<u64>().prop_map(Signal::Any),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any_words(), any_signal()).prop_map(|(words, signal)| Step::Write(words, signal)),
        1 => (any::<usize>(), any::<u64>()).prop_map(|(at, word)| Step::Scribble(at, word)),
        2 => (0..3u64, any::<bool>(), prop::collection::vec(any::<u8>(), 0..100))
            .prop_map(|(tag, valid, payload)| {
                Step::Bulk(tag, if valid { encoded(&payload) } else { payload })
            }),
        2 => (any_words(), any_signal()).prop_map(|(words, signal)| Step::Answer(words, signal)),
        1 => Just(Step::Provoke),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_peer_writes_the_trustee_goes_on(steps in prop::collection::vec(any_step(), 1..40)) {
        fill_table();
        // Panics of delegated closures are expected and answered; their messages are of no use.
        static QUIET: std::sync::Once = std::sync::Once::new();
        QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
        Scene::with(|scene, node, fibers| {
            for step in &steps {
                scene.act(step, fibers);
                scene.serve(node, fibers);
            }
        });
    }
}
