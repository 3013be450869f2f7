//! A trustee whose clients have nothing to ask: what it costs to look at all of them.

use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use transport_shm::ShmTransport;
use trust_core::{Job, Node, Registered, Wiring, WiringError};

use crate::harness::{Case, Unit};
use crate::measure::sampling::CaseError;

const TIMEOUT: Duration = Duration::from_secs(20);

/// One poll of a thread of a rack of `hosts` hosts with `threads` threads each. None of them runs:
/// only their slots are there.
pub fn idle_clients(hosts: u32, threads: u32) -> Case {
    let clients = hosts * threads - 1;
    let plural = if hosts == 1 { "host" } else { "hosts" };
    let name = format!("gossamer/{clients} idle clients of {hosts} {plural}");
    Case::new(name, Unit::Nanoseconds, move |sampler| {
        sampler.try_single_thread(|thread| {
            let trustee = Trustee::new(hosts, threads)?;
            let node = Node::enter(trustee.node.clone());
            thread.measure(|n| (0..n).for_each(|_| assert!(!node.poll(), "no client sends")));
            Ok(())
        })
    })
}

/// A trustee whose clients do not run.
pub(super) struct Trustee {
    pub(super) node: Rc<Node>,
    // The hosts that are the clients', and the slots that the node looks at.
    _wirings: Vec<Wiring>,
    _transports: Vec<Arc<ShmTransport>>,
    _registered: Registered,
}

impl Trustee {
    pub(super) fn new(hosts: u32, threads: u32) -> Result<Trustee, CaseError> {
        let transports = match hosts {
            1 => ShmTransport::threads(threads).map(|host| vec![host]),
            _ => ShmTransport::in_process(hosts, threads),
        };
        let transports =
            transports.map_err(|e| CaseError::Failed(format!("cannot make {hosts} hosts: {e}")))?;
        let registered = Registered::new(Arc::new(drop::<Job>));
        let number = registered.number();
        // Each host waits for what the others share.
        let wirings: Result<Vec<Wiring>, WiringError> = thread::scope(|scope| {
            let connect = |transport: &Arc<ShmTransport>| {
                let transport = transport.clone();
                scope.spawn(move || Wiring::connect(transport, number, TIMEOUT))
            };
            let connecting: Vec<_> = transports.iter().map(connect).collect();
            connecting.into_iter().map(|one| one.join().expect("wiring does not panic")).collect()
        });
        let failed = |e| CaseError::Failed(format!("cannot wire up {hosts} hosts: {e}"));
        let wirings = wirings.map_err(failed)?;
        let node = wirings[0].node(0).map_err(failed)?;
        Ok(Trustee { node, _wirings: wirings, _transports: transports, _registered: registered })
    }
}
