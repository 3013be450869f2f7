//! [`ThreadState`]: one runtime thread of this process.
//!
//! It has a *connections*: its queue pairs and what is under way on them, behind one lock, and a completion
//! queue for all of them. Data needs nobody at the other end; but notifications and notifications must be
//! read there, and completions here. As with connections over TCP, the thread itself does that:
//! whenever it polls, and when its parker wakes, since the completion queue wakes it. For a thread
//! that does neither, because its own code keeps it busy, the service thread does it at every
//! [tick](transport_api::PollTracker::TICK); it also looks then whether threads sleep that were not
//! woken ([`sleepers`](crate::control::sleep_flags)). So the lock is free whenever its thread wants it,
//! nearly.

use crate::{
    config::RdmaConfig,
    qp::connection::{Connection, Incident},
    qp::immediate::RECEIVES,
    verbs::{AT_ONCE, Cq, Found, Pd},
};
use primitive::sync::{AtomicBool, AtomicU64};
use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use transport_api::{HostId, LossReason, ThreadId};

/// A thread's queue pairs.
#[derive(Default)]
pub(crate) struct Connections {
    /// By host; that to this host itself is there only if it is needed.
    pub(crate) by_host: Vec<Option<Connection>>,
    /// The host that the queue pair of this number leads to.
    by_number: HashMap<u32, usize>,
    /// What has happened and is not dealt with yet, by host.
    pub(crate) incidents: Vec<(usize, Incident)>,
    /// Whether anything of that concerned the thread itself, since somebody last asked: most of
    /// what it hears while it sleeps may be for others.
    pub(crate) concerned: bool,
    /// Threads of other hosts that seemed to be awake, and have not been woken for what was started
    /// for them.
    pub(crate) unwoken: Vec<ThreadId>,
    /// Which of them was looked at last.
    pub(crate) last_checked: usize,
    found: Found,
}

impl Connections {
    /// Puts the queue pair to `peer` in its place.
    pub(crate) fn put(&mut self, peer: HostId, connection: Connection) {
        let index = peer.0 as usize;
        self.by_number.insert(connection.qp.number(), index);
        self.by_host[index] = Some(connection);
    }

    /// Takes what has completed on `cq`, and starts what has waited for that; true if there was
    /// anything. What comes of it is among the incidents.
    pub(crate) fn handle_completions(&mut self, cq: &Cq) -> bool {
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
                    let text = format!("the RDMA device has failed: {error}");
                    for (index, connection) in (0..).zip(&mut *by_host) {
                        if let Some(connection) = connection {
                            connection.end();
                            let reason = LossReason::Connection(text.clone());
                            incidents.push((index, Incident::Failed(reason)));
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

    /// Whether anything has concerned the thread itself since this was last asked.
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
        let by_host = (0..hosts).map(|_| None).collect();
        Self {
            is_asleep: AtomicBool::new(false),
            sleeps: AtomicU64::new(0),
            cq,
            connections: Mutex::new(Connections { by_host, ..Default::default() }),
        }
    }

    pub(crate) fn connections(&self) -> MutexGuard<'_, Connections> {
        // Nobody panics with it unless the process is beyond help.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A new completion queue for a thread of a rack of so many hosts, which holds the completions of
/// all its queue pairs even when all of them fail.
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
            "{hosts} hosts and {} work requests for each need {needed} completions, and the \
             device has {most}: lower the depth",
            config.depth
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Cq::new(pd.device(), needed)
}
