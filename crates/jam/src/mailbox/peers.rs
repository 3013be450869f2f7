//! [`Peers`]: what a receiver knows of the senders of its frames: what it owes them of reports, and
//! where they keep code.

use gossamer_segment::{HostId, RemoteSegment, SegmentError, Segments};
use jam_format::Digest;

use crate::mailbox::failure::FailureKind;
use crate::mailbox::form::{
    ENTRY_BYTES, REPORT_BYTES, SenderReport, TOKEN_AT, UNIT, WORD, decode_entry,
};
use crate::mailbox::store::name_of;

/// The most senders known at a time. A mailbox has at most half as many bank sets, but senders come and go,
/// and a malicious host can invent tokens: those that no report can reach are forgotten, or else the least
/// recently active one.
const MAX_PEERS: usize = 2048;

/// Polls without a frame before reports that are messages: they cost more than a frame.
const IDLE_POLLS: u32 = 32;

/// Frames between two reports to senders whose frames come without pause.
const REPORT_EVERY: u32 = 1024;

/// The senders of a mailbox's frames.
pub(super) struct Peers {
    all: Vec<Peer>,
    /// The one whose frame came last.
    last: usize,
    /// Switches from one sender to another: the clock of [`Peer::turn`].
    turns: u64,
    /// Frames since the last report.
    unreported: u32,
    /// Polls without a frame since the last one.
    idle: u32,
    /// Whether a report is a message to some sender, as its memory is not mapped here.
    are_messages: bool,
    /// Whether some sender did not take its last report.
    is_stuck: bool,
}

struct Peer {
    host: HostId,
    token: u64,
    segment: Way,
    report: SenderReport,
    /// Frames that the sender knows to be handled.
    told: u64,
    /// When it last became the one whose frames come: the smallest is forgotten first.
    turn: u64,
}

/// The segment of a sender.
enum Way {
    Unknown,
    Open(RemoteSegment),
    /// The sender has gone, or never had one.
    Gone,
}

impl Way {
    /// Opens the segment, which is an exchange with its host; `None` if that has none.
    #[track_caller]
    fn open(&mut self, segments: &Segments, host: HostId, token: u64) -> Option<&RemoteSegment> {
        if matches!(self, Way::Unknown) {
            *self = Way::find(segments, host, token).map_or(Way::Gone, Way::Open);
        }
        match self {
            Way::Open(segment) => Some(segment),
            Way::Unknown | Way::Gone => None,
        }
    }

    #[track_caller]
    fn find(segments: &Segments, host: HostId, token: u64) -> Option<RemoteSegment> {
        let segment = segments.options().host(host).open(&name_of(token)).ok()?;
        let is_it = segment.len() >= UNIT && segment.at_byte::<u64>(TOKEN_AT).read().ok()? == token;
        is_it.then_some(segment)
    }
}

impl Peers {
    pub(super) fn new() -> Self {
        Peers {
            all: Vec::new(),
            last: 0,
            turns: 0,
            unreported: 0,
            idle: 0,
            are_messages: false,
            is_stuck: false,
        }
    }

    /// Counts a frame of a sender; which one of that it is.
    #[inline]
    pub(super) fn count(&mut self, host: HostId, token: u64, failure: Option<FailureKind>) -> u64 {
        let number = self.position(host, token);
        let Peer { report, .. } = &mut self.all[number];
        let frame = report.handled;
        report.handled += 1;
        if let Some(kind) = failure {
            report.failed += 1;
            report.last_failure = Some((frame, kind));
        }
        self.unreported += 1;
        self.idle = 0;
        frame
    }

    #[inline]
    fn position(&mut self, host: HostId, token: u64) -> usize {
        let is_it = |peer: &Peer| peer.token == token && peer.host == host;
        if !self.all.get(self.last).is_some_and(is_it) {
            self.last = self.all.iter().position(is_it).unwrap_or_else(|| self.add(host, token));
            self.turns += 1;
            self.all[self.last].turn = self.turns;
        }
        self.last
    }

    #[cold]
    fn add(&mut self, host: HostId, token: u64) -> usize {
        if self.all.len() >= MAX_PEERS {
            self.all.retain(|peer| !matches!(peer.segment, Way::Gone));
        }
        if self.all.len() >= MAX_PEERS
            && let Some((oldest, _)) = self.all.iter().enumerate().min_by_key(|(_, peer)| peer.turn)
        {
            self.all.swap_remove(oldest);
        }
        // Frames without a token have no way back.
        let segment = if token == 0 { Way::Gone } else { Way::Unknown };
        let report = SenderReport::default();
        self.all.push(Peer { host, token, segment, report, told: 0, turn: 0 });
        self.all.len() - 1
    }

    /// The code at a place of a sender's segment; `None` if that sender has no such code, or has gone.
    #[cold]
    #[track_caller]
    pub(super) fn fetch(
        &mut self,
        segments: &Segments,
        (host, token): (HostId, u64),
        place: u32,
        digest: &Digest,
    ) -> Option<Vec<u8>> {
        let number = self.position(host, token);
        let Peer { segment: way, .. } = &mut self.all[number];
        let segment = way.open(segments, host, token)?;
        let at = (place as usize).checked_mul(UNIT).filter(|at| *at > 0)?;
        let read = || -> Result<Option<Vec<u8>>, SegmentError> {
            let mut head = [0; ENTRY_BYTES];
            segment.read(at, &mut head)?;
            let Some(len) = decode_entry(&head, digest) else { return Ok(None) };
            let mut code = vec![0; len];
            segment.read_block(at + ENTRY_BYTES, &mut code)?;
            Ok(Some(code))
        };
        match read() {
            Ok(code) => code,
            // A place that no sender names.
            Err(SegmentError::OutOfBounds { .. }) => None,
            Err(_) => {
                *way = Way::Gone;
                None
            }
        }
    }

    /// Whether reports are due although frames come without pause.
    #[inline(always)]
    pub(super) fn is_overdue(&self) -> bool {
        self.unreported >= REPORT_EVERY
    }

    /// Nothing has come: whether it is time for reports.
    #[inline]
    pub(super) fn note_idle(&mut self) -> bool {
        self.idle = self.idle.saturating_add(1);
        self.owes_reports() && (!self.are_messages || self.idle >= IDLE_POLLS)
    }

    /// Nothing comes for a while: reports are due at the next poll.
    #[inline]
    pub(super) fn skip_idle(&mut self) {
        self.idle = IDLE_POLLS;
    }

    /// Whether reports are due as soon as nothing comes for a moment.
    pub(super) fn owes_soon(&self) -> bool {
        self.owes_reports() && !self.is_stuck
    }

    /// Whether some sender has not been told of all its frames.
    #[inline(always)]
    pub(super) fn owes_reports(&self) -> bool {
        self.unreported > 0
    }

    /// Tells senders of their frames, as far as they take it.
    #[cold]
    #[track_caller]
    pub(super) fn report(&mut self, segments: &Segments) {
        // A host that makes senders up must not have the receiver look for all of them at once.
        let (mut left, mut may_look) = (0, true);
        self.is_stuck = false;
        for Peer { host, token, segment: way, report, told, .. } in &mut self.all {
            if *told == report.handled {
                continue;
            }
            if matches!(way, Way::Unknown) && !std::mem::take(&mut may_look) {
                left = 1;
                continue;
            }
            let Some(segment) = way.open(segments, *host, *token) else {
                *told = report.handled;
                continue;
            };
            self.are_messages |= !segment.is_mapped();
            // A sender that takes nothing must not stop the receiver of all others.
            if !segment.can_notify(REPORT_BYTES) {
                (left, self.is_stuck) = (1, true);
                continue;
            }
            let written = write_report(segment, report);
            *told = report.handled;
            if written.is_err() {
                *way = Way::Gone;
            }
        }
        self.unreported = left;
    }

    /// As [`report`](Self::report), to those senders whose segments are open, without waiting.
    pub(super) fn report_known(&mut self) {
        for Peer { segment, report, told, .. } in &mut self.all {
            if *told != report.handled
                && let Way::Open(segment) = segment
                && segment.can_notify(REPORT_BYTES)
            {
                // A sender that has gone needs none.
                let _ = write_report(segment, report);
                *told = report.handled;
            }
        }
    }
}

#[track_caller]
fn write_report(segment: &RemoteSegment, report: &SenderReport) -> Result<(), SegmentError> {
    const { assert!(REPORT_BYTES <= TOKEN_AT && REPORT_BYTES.is_multiple_of(WORD)) };
    segment.write(0, &report.encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_goes_on_is_not_forgotten() {
        let mut peers = Peers::new();
        for round in 0..2 * MAX_PEERS as u64 {
            assert_eq!(peers.count(HostId(0), 1, None), round);
            assert_eq!(peers.count(HostId(1), 2 + round, None), 0);
        }
        assert_eq!(peers.all.len(), MAX_PEERS);
    }
}
