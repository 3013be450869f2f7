//! Which fence reports a refused write, if this process also fences for reasons of its own.

use std::sync::Arc;
use std::time::Duration;

use transport_api::conformance::Altered;
use transport_api::{HostId, Namespace, OpError, RegionKey, Rights, Transport};
use transport_shm::ShmTransport;

use crate::engine::{PIECE, attached};
use crate::segments::Segments;

#[test]
fn what_forgets_one_refusal_keeps_those_of_other_writes() {
    let host = HostId(0);
    let transport: Arc<dyn Transport> =
        Altered::unmapped(ShmTransport::in_process(1, 1).expect("a rack").remove(0));
    let segments = Segments::new(transport.clone());
    let _attached = segments.attach(0).expect("attached");
    let engine = attached(&segments.0).expect("attached");
    let [gone, good] = [1, 2].map(|number| {
        let key = RegionKey::new(Namespace::SEGMENTS, number);
        let region = transport.export(key, PIECE, Rights::ALL.into()).expect("a region");
        let remote = engine.import(host, key, Duration::ZERO).expect("a region");
        (remote, region)
    });
    engine.revoke(gone.0.key()).expect("nothing uses it");
    // The fifth write begins a fence for the window, which no write waits for yet.
    for region in [&gone.0, &gone.0, &gone.0, &gone.0, &good.0] {
        engine.write(region, 0, &[7; PIECE], None).expect("the owner refuses it later");
    }
    // As a writer does that waits to notify.
    let begin = || engine.begin_fence(host);
    let peeked = engine.flow.peek_refusal(host, |_| false, begin, |fence| engine.wait(fence));
    assert_eq!(peeked, Ok(None), "the earlier fence has the refusal");
    assert!(engine.flow.is_clean(host));
    engine.forget_refusals(host);
    let refused = engine.fence(host);
    assert!(matches!(refused, Err(OpError::Revoked { key, .. }) if key == gone.0.key()));
    engine.fence(host).expect("a refusal is reported once");
}
