//! Heartbeats, and the judgement of peers that are silent.

use std::time::{Duration, Instant};

use transport_api::{HostId, LossReason, deadline};

use crate::config::{HEARTBEATS_PER_BOUND, Medium};
use crate::control::Control;

/// When heartbeats are due.
pub(super) struct Heartbeats {
    bound: Duration,
    interval: Duration,
    next: Instant,
}

impl Heartbeats {
    pub(super) fn new(now: Instant, bound: Duration) -> Self {
        Self { bound, interval: bound / HEARTBEATS_PER_BOUND, next: now }
    }

    pub(super) fn next(&self) -> Instant {
        self.next
    }
}

impl<M: Medium> Control<M> {
    /// Whether the next [`poll`](Self::poll) judges which peers are silent. The transport first reads
    /// everything that has arrived.
    pub fn is_heartbeat_due(&self, now: Instant) -> bool {
        self.heartbeats.as_ref().is_some_and(|heartbeats| heartbeats.next <= now)
    }

    /// Has heartbeats sent, and judges the silence of peers, if it is time.
    pub(super) fn check_heartbeats(&mut self, now: Instant) {
        if !self.is_heartbeat_due(now) {
            return;
        }
        let Some(Heartbeats { bound, interval, next }) = &mut self.heartbeats else { return };
        // A host that was held up itself cannot tell how long others were silent meanwhile. Their
        // silence before that counts: this host may be held up again and again.
        let late = Some(now - *next).filter(|late| late > interval).unwrap_or_default();
        // A bound of zero does not make this host send heartbeats all the time.
        *next = deadline(now, (*interval).max(Duration::from_nanos(1)));
        let (bound, longest) = (*bound, bound.saturating_add(*interval));
        for peer in (0..self.config.hosts).map(HostId) {
            let state = self.peer(peer);
            if !state.is_open() {
                continue;
            }
            state.heard = state.heard.max(now.min(state.heard + late));
            state.heartbeat_due = true;
            let silence = now.saturating_duration_since(state.heard);
            if state.end.is_none() && silence > longest {
                let text = format!("it was silent for more than {bound:?}");
                self.lose(peer, LossReason::Connection(text));
            }
            self.note_ready(peer);
        }
    }
}
