//! [`Refused`]: the refusals of code that a mailbox has read at its senders, for a while.
//!
//! A frame without code names its jam by digest. If that is not linked, its code is read at the sender,
//! hashed and judged. A refused jam is never linked, so each frame of it would cost all that again: a wait
//! for another host, while frames of other senders wait behind it.
//!
//! A refusal is that of one sender, place and digest: the bytes at a place are the sender's to write, so what
//! is refused there says nothing about the same digest elsewhere, where a proof may stand after the code.
//! It holds until something changes that a judgement depends on ([`Standing`]), and for a second at most:
//! certificates begin and end to be valid by themselves.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use gossamer_segment::HostId;
use jam_format::Digest;

use crate::error::Refusal;
use crate::policy::Policy;

/// How long a refusal is remembered.
const LIFE: Duration = Duration::from_secs(1);

/// The most refusals of one host that a mailbox remembers; its oldest is forgotten first. So no host makes a
/// mailbox forget those of another.
const MAX_OF_HOST: usize = 8;

/// Code at a sender.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) host: HostId,
    pub(super) token: u64,
    pub(super) place: u32,
    pub(super) digest: Digest,
}

/// What the judgement on code depends on, besides the code and the time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    /// That of the mailbox.
    pub(super) policy: Option<Policy>,
    /// [`Gatekeeper::changes`](crate::policy::Gatekeeper::changes).
    pub(super) admissions: u64,
    /// The generation of the process's symbols.
    pub(super) symbols: u64,
}

/// What a mailbox remembers of refused code.
pub(super) struct Refused {
    /// What all refusals depend on.
    standing: Standing,
    /// By host, in the order of time.
    by_host: HashMap<HostId, VecDeque<(Instant, Source, Refusal)>>,
}

impl Refused {
    pub(super) fn new(standing: Standing) -> Self {
        Refused { standing, by_host: HashMap::new() }
    }

    /// Why this code was refused, if that still holds at the time `now` under `standing`.
    pub(super) fn find(
        &mut self,
        now: Instant,
        standing: Standing,
        source: &Source,
    ) -> Option<Refusal> {
        if self.standing != standing {
            self.by_host.clear();
            self.standing = standing;
        }
        let all = self.by_host.get_mut(&source.host)?;
        while all.front().is_some_and(|(since, ..)| now.duration_since(*since) >= LIFE) {
            all.pop_front();
        }
        all.iter().find(|(_, of, _)| of == source).map(|(.., refusal)| refusal.clone())
    }

    /// Remembers that this code was refused: judged at the time `now` or later, under the standing of the
    /// last [`find`](Self::find). What has changed since then, the next one sees.
    pub(super) fn note(&mut self, now: Instant, source: Source, refusal: &Refusal) {
        // The next frame may be taken: there may be room, or time to look at signatures.
        if refusal.is_transient() {
            return;
        }
        let all = self.by_host.entry(source.host).or_default();
        if all.len() >= MAX_OF_HOST {
            all.pop_front();
        }
        all.push_back((now, source, refusal.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANDING: Standing = Standing { policy: None, admissions: 1, symbols: 1 };

    fn source(place: u32) -> Source {
        Source { host: HostId(1), token: 7, place, digest: Digest::of(b"code") }
    }

    fn refusal(reason: &str) -> Refusal {
        Refusal::Policy { reason: reason.to_owned() }
    }

    #[test]
    fn a_refusal_is_that_of_one_source() {
        let (mut refused, now) = (Refused::new(STANDING), Instant::now());
        refused.note(now, source(1), &refusal("unsigned"));
        assert_eq!(refused.find(now, STANDING, &source(1)), Some(refusal("unsigned")));
        let digest = Digest::of(b"other code");
        for other in [
            source(2),
            Source { host: HostId(2), ..source(1) },
            Source { token: 8, ..source(1) },
            Source { digest, ..source(1) },
        ] {
            assert_eq!(refused.find(now, STANDING, &other), None);
        }
    }

    #[test]
    fn a_refusal_ends_with_its_standing_and_its_time() {
        let (mut refused, now) = (Refused::new(STANDING), Instant::now());
        for change in [
            Standing { policy: Some(Policy::AnyPeer), ..STANDING },
            Standing { admissions: 2, ..STANDING },
            Standing { symbols: 2, ..STANDING },
        ] {
            assert_eq!(refused.find(now, STANDING, &source(1)), None);
            refused.note(now, source(1), &refusal("unsigned"));
            assert!(refused.find(now + LIFE / 2, STANDING, &source(1)).is_some());
            assert_eq!(refused.find(now, change, &source(1)), None);
            assert_eq!(refused.find(now, STANDING, &source(1)), None, "it is forgotten");
        }
        refused.note(now, source(1), &refusal("unsigned"));
        assert_eq!(refused.find(now + LIFE, STANDING, &source(1)), None);
    }

    #[test]
    fn refusals_are_bounded_and_those_of_a_moment_are_none() {
        let (mut refused, now) = (Refused::new(STANDING), Instant::now());
        let not_now = Refusal::NotNow { reason: "too many wrong signatures".to_owned() };
        for of_a_moment in [Refusal::NoRoom { bytes: 1 }, not_now] {
            refused.note(now, source(0), &of_a_moment);
            assert_eq!(refused.find(now, STANDING, &source(0)), None);
        }
        let of_another = Source { host: HostId(2), ..source(0) };
        refused.note(now, of_another, &refusal(""));
        (0..100).for_each(|place| refused.note(now, source(place), &refusal("")));
        assert_eq!(refused.by_host[&HostId(1)].len(), MAX_OF_HOST);
        assert_eq!(refused.find(now, STANDING, &source(0)), None);
        assert!(refused.find(now, STANDING, &source(99)).is_some());
        assert!(
            refused.find(now, STANDING, &of_another).is_some(),
            "each host has places of its own"
        );
    }
}
