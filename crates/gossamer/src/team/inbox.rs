//! [`Inbox`]: the parts that the members of a team have sent to one of them, by round.

use std::any::Any;
use std::collections::VecDeque;

use fiber::FiberId;
use serde::{Deserialize, Serialize};

/// The inbox of one member, a property of its thread.
pub(super) struct Inbox {
    /// The members of the team.
    size: usize,
    /// The rounds that have begun and were not taken, the oldest first: two at most.
    rounds: VecDeque<Round>,
    /// The number of the oldest round.
    oldest: u64,
    /// Why a member takes part in no further round.
    ended: Vec<Option<String>>,
    /// The fiber that waits for the oldest round.
    waiting: Option<FiberId>,
}

/// The parts of one round, by member, with the names of their types.
struct Round {
    parts: Vec<Option<(Box<dyn Any>, &'static str)>>,
    missing: usize,
}

/// Why a round has no result.
#[derive(Clone, Debug, Serialize, Deserialize, thiserror::Error)]
pub(super) enum OutOfStep {
    /// A member has ended.
    #[error("member {0} takes part no longer: {1}")]
    Ended(usize, String),
    /// A member calls another collective, or one with another type.
    #[error("member {0} sent {1}, expected {2}: all members must call the same collectives")]
    Type(usize, String, String),
}

impl Inbox {
    pub(super) fn new(size: usize) -> Inbox {
        let ended = vec![None; size];
        Inbox { size, rounds: VecDeque::new(), oldest: 0, ended, waiting: None }
    }

    /// The part of member `from` has arrived.
    pub(super) fn put(&mut self, round: u64, from: usize, part: Box<dyn Any>, name: &'static str) {
        // Of a member in step these hold; the panic is the answer to a host that sends something else.
        let at = round.wrapping_sub(self.oldest) as usize;
        assert!(at < 2 && from < self.size, "part {round} of member {from} is out of step");
        while self.rounds.len() <= at {
            let parts = (0..self.size).map(|_| None).collect();
            self.rounds.push_back(Round { parts, missing: self.size });
        }
        let place = &mut self.rounds[at].parts[from];
        assert!(place.is_none(), "member {from} sent part {round} twice");
        *place = Some((part, name));
        self.rounds[at].missing -= 1;
        if at == 0 && self.rounds[0].missing == 0 {
            self.wake();
        }
    }

    /// A member sends no further parts.
    pub(super) fn end(&mut self, member: usize, reason: String) {
        assert!(member < self.size, "a team of {} has no member {member}", self.size);
        self.ended[member].get_or_insert(reason);
        self.wake();
    }

    fn wake(&mut self) {
        self.waiting.take().into_iter().for_each(fiber::unpark);
    }

    /// Takes the parts of the oldest round; `None` if some are missing: then `fiber` is woken when there
    /// is more to say.
    pub(super) fn take<V: 'static>(&mut self, fiber: u64) -> Result<Option<Vec<V>>, OutOfStep> {
        if self.rounds.front().is_none_or(|round| round.missing > 0) {
            // Before the wait, so that a round that cannot end is not waited for.
            let has = |member: usize| {
                self.rounds.front().is_some_and(|round| round.parts[member].is_some())
            };
            for (member, reason) in self.ended.iter().enumerate() {
                if let Some(reason) = reason.as_ref().filter(|_| !has(member)) {
                    return Err(OutOfStep::Ended(member, reason.clone()));
                }
            }
            self.waiting = Some(FiberId::from_bits(fiber));
            return Ok(None);
        }
        self.oldest += 1;
        let round = self.rounds.pop_front().into_iter().flat_map(|round| round.parts).flatten();
        let typed = round.enumerate().map(|(member, (part, name))| match part.downcast::<V>() {
            Ok(part) => Ok(*part),
            Err(_) => {
                let expected = std::any::type_name::<V>().to_owned();
                Err(OutOfStep::Type(member, name.to_owned(), expected))
            }
        });
        typed.collect::<Result<_, _>>().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn put(inbox: &mut Inbox, round: u64, from: usize, part: u32) {
        inbox.put(round, from, Box::new(part), "u32");
    }

    #[test]
    fn a_round_is_taken_when_it_is_complete_and_the_next_may_have_begun() {
        let mut inbox = Inbox::new(2);
        put(&mut inbox, 0, 1, 11);
        put(&mut inbox, 1, 1, 12);
        assert!(matches!(inbox.take::<u32>(0), Ok(None)));
        put(&mut inbox, 0, 0, 1);
        assert_eq!(inbox.take::<u32>(0).unwrap(), Some(vec![1, 11]));
        assert!(matches!(inbox.take::<u32>(0), Ok(None)));
        put(&mut inbox, 1, 0, 2);
        assert_eq!(inbox.take::<u32>(0).unwrap(), Some(vec![2, 12]));
    }

    #[test]
    fn the_end_of_a_member_fails_only_rounds_without_its_part() {
        let mut inbox = Inbox::new(2);
        put(&mut inbox, 0, 1, 11);
        inbox.end(1, "it has returned".to_owned());
        assert!(matches!(inbox.take::<u32>(0), Ok(None)), "its part of this round is there");
        put(&mut inbox, 0, 0, 1);
        assert_eq!(inbox.take::<u32>(0).unwrap(), Some(vec![1, 11]));
        put(&mut inbox, 1, 0, 2);
        assert!(matches!(inbox.take::<u32>(0), Err(OutOfStep::Ended(1, _))));
    }

    #[test]
    fn parts_that_no_member_in_step_sends_are_refused_and_change_nothing() {
        let mut inbox = Inbox::new(2);
        put(&mut inbox, 0, 1, 11);
        for (round, from) in [(0, 1), (0, 2), (2, 0), (u64::MAX, 0)] {
            let refused = catch_unwind(AssertUnwindSafe(|| put(&mut inbox, round, from, 5)));
            assert!(refused.is_err(), "part {round} of member {from} was taken");
        }
        put(&mut inbox, 0, 0, 1);
        assert_eq!(inbox.take::<u32>(0).unwrap(), Some(vec![1, 11]));
    }

    #[test]
    fn parts_of_another_type_are_named() {
        let mut inbox = Inbox::new(1);
        put(&mut inbox, 0, 0, 1);
        let error = inbox.take::<u64>(0).unwrap_err().to_string();
        assert!(error.contains("member 0 sent u32, expected u64"), "{error}");
    }
}
