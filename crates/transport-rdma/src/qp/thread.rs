//! [`ThreadState`]: one runtime thread of this process: its queue pairs, and their completion queue.
//!
//! Data needs no processor at its target. But immediate data and records must be handled there, and
//! completions at the sender. A thread handles its own whenever it polls, and when the completion
//! queue has woken its parker. For a thread that does neither, because the program keeps it busy, the
//! service thread does it at every [tick](transport_api::PollTracker::TICK), and then also wakes the
//! sleepers that the thread remembers. So the lock of a thread's connections is rarely contended.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use primitive::sync::{AtomicBool, AtomicU64};
use rdma_protocol::immediate::RECEIVES;
use transport_api::{HostId, ThreadId};

use crate::config::RdmaConfig;
use crate::qp::connection::{Connection, Incident};
use crate::verbs::{AT_ONCE, Completions, Cq, Found, Pair, Pd, Qp};

/// The queue pairs of a thread.
pub(crate) struct Connections<P = Qp> {
    /// By host; the one to this host is created when it is first needed.
    pub(crate) by_host: Vec<Option<Connection<P>>>,
    /// The host that the queue pair of this number leads to.
    by_number: HashMap<u32, usize>,
    /// Incidents that are not handled yet, with the index of their host.
    pub(crate) incidents: Vec<(usize, Incident)>,
    /// Whether an incident concerned the thread itself since [`was_concerned`](Self::was_concerned):
    /// most of those that wake it may be for other threads.
    pub(crate) concerned: bool,
    /// Threads of other hosts that seemed awake, and were not woken for what was started for them.
    pub(crate) unwoken: Vec<ThreadId>,
    /// The index of the one whose flag was checked last.
    pub(crate) last_checked: usize,
    /// Whether the completion queue could not be read: it never can be again.
    cq_failed: bool,
    found: Found,
}

impl Connections {
    /// Adds the queue pair to `peer`.
    pub(crate) fn insert(&mut self, peer: HostId, mut connection: Connection) {
        if self.cq_failed {
            // No completion would be found.
            connection.end();
        }
        let index = peer.0 as usize;
        self.by_number.insert(connection.qp.number(), index);
        self.by_host[index] = Some(connection);
    }
}

impl<P: Pair> Connections<P> {
    /// None yet to any of `hosts` hosts.
    fn new(hosts: usize) -> Self {
        Self {
            by_host: (0..hosts).map(|_| None).collect(),
            by_number: HashMap::new(),
            incidents: Vec::new(),
            concerned: false,
            unwoken: Vec::new(),
            last_checked: 0,
            cq_failed: false,
            found: Found::default(),
        }
    }

    /// Handles the completions on `cq`, and starts what was deferred; whether there were any. Adds to
    /// the incidents.
    pub(crate) fn handle_completions(&mut self, cq: &impl Completions) -> bool {
        if self.cq_failed {
            // That is reported. A thread that found something at each poll would never sleep.
            return false;
        }
        let Connections { by_host, by_number, incidents, found, .. } = self;
        let mut any = false;
        loop {
            let polled = cq.poll(found, |completion| {
                let Some(&index) = by_number.get(&completion.qp) else { return };
                let Some(connection) = &mut by_host[index] else { return };
                connection.take(completion, &mut |incident| incidents.push((index, incident)));
            });
            any |= !matches!(polled, Ok(0));
            match polled {
                Ok(AT_ONCE) => {}
                Ok(_) => break,
                Err(error) => {
                    self.cq_failed = true;
                    let text = format!("the RDMA device failed: {error}");
                    for (index, connection) in (0..).zip(&mut *by_host) {
                        if let Some(connection) = connection {
                            connection
                                .fail(&text, &mut |incident| incidents.push((index, incident)));
                        }
                    }
                    break;
                }
            }
        }
        if any {
            for (index, connection) in (0..).zip(by_host) {
                if let Some(connection) = connection {
                    connection.advance(&mut |incident| incidents.push((index, incident)));
                }
            }
        }
        any
    }

    /// Whether the completion queue could not be read.
    pub(crate) fn has_failed_cq(&self) -> bool {
        self.cq_failed
    }

    /// Whether an incident has concerned the thread itself since the last call.
    pub(crate) fn was_concerned(&mut self) -> bool {
        std::mem::take(&mut self.concerned)
    }
}

/// One runtime thread of this process.
pub(crate) struct ThreadState {
    /// Whether it sleeps, so that completions wake it.
    pub(crate) is_asleep: AtomicBool,
    /// How often it has slept.
    pub(crate) sleeps: AtomicU64,
    pub(crate) cq: Arc<Cq>,
    connections: Mutex<Connections>,
}

impl ThreadState {
    pub(crate) fn new(hosts: usize, cq: Arc<Cq>) -> Self {
        Self {
            is_asleep: AtomicBool::new(false),
            sleeps: AtomicU64::new(0),
            cq,
            connections: Mutex::new(Connections::new(hosts)),
        }
    }

    pub(crate) fn connections(&self) -> MutexGuard<'_, Connections> {
        // No code panics while it holds the lock.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A completion queue for a thread of a rack of `hosts` hosts, with room for the completions of all
/// its queue pairs even when all of them fail.
pub(crate) fn completion_queue(
    pd: &Pd,
    config: &RdmaConfig,
    hosts: usize,
    most: u32,
) -> io::Result<Arc<Cq>> {
    let each = config.depth + RECEIVES;
    let needed = u32::try_from(hosts).unwrap_or(u32::MAX).saturating_mul(each);
    if needed > most {
        let text = format!(
            "{hosts} hosts with {} work requests each need {needed} completions, the device has \
             {most}: lower the depth",
            config.depth
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Cq::new(pd.device(), needed)
}

#[cfg(test)]
mod tests {
    use transport_api::LossReason;

    use super::*;
    use crate::qp::connection::tests::{Fake, connection};
    use crate::verbs::Completion;

    /// A completion queue that cannot be read.
    struct Dead;

    impl Completions for Dead {
        fn poll(&self, _: &mut Found, _: impl FnMut(Completion)) -> io::Result<usize> {
            Err(io::Error::other("it cannot be read"))
        }
    }

    #[test]
    fn a_completion_queue_that_cannot_be_read_fails_each_queue_pair_once() {
        let mut connections: Connections<Fake> = Connections::new(4);
        for host in [1, 2, 3] {
            connections.by_host[host] = Some(connection());
        }
        // Its failure is reported already.
        connections.by_host[2].as_mut().expect("just made").end();
        assert!(connections.handle_completions(&Dead));
        let failed = connections.incidents.drain(..).map(|(host, incident)| match incident {
            Incident::Failed(LossReason::Connection(why)) => (host, why),
            other => panic!("{other:?}"),
        });
        let why = || "the RDMA device failed: it cannot be read".to_owned();
        assert_eq!(failed.collect::<Vec<_>>(), [(1, why()), (3, why())]);
        // Nothing is moved any more, so threads may sleep.
        assert!(!connections.handle_completions(&Dead) && connections.incidents.is_empty());
    }
}
