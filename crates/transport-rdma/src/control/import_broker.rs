//! [`ImportBroker`]: the imports and withdrawals that are under way between this host and its peers,
//! without anybody to talk to.
//!
//! ```text
//!   importer                  owner               owner                     user
//!   Ask    ---------------->                      Revoke  ---------------->
//!          <----------------  RegionDescriptor                        <----------------  Forgotten
//! ```
//!
//! Each is known by a number of the one who began it. Who answers what it was not asked, or what it
//! has answered already, is not heard: the one who asked may have timed out.

use crate::{control::message::Message, memory::descriptor::RegionDescriptor};
use primitive::limits::PENDING_IMPORTS;
use std::{
    collections::{BTreeSet, HashMap},
    sync::mpsc,
    time::{Duration, Instant},
};
use transport_api::{HostId, RegionKey, RemoteRegion, deadline};

/// Where the answer to an import goes: a region, or that there is none.
pub(crate) type Answer = mpsc::Sender<Option<RemoteRegion>>;

/// An import that a peer waits for.
struct Waiting {
    from: HostId,
    number: u64,
    key: RegionKey,
    deadline: Instant,
}

/// An import of this host that is not answered.
struct Asked {
    owner: HostId,
    key: RegionKey,
    answer: Answer,
}

/// A withdrawal of this host.
struct Withdrawal {
    /// Who has not forgotten the region; this host itself may be among them.
    users: BTreeSet<HostId>,
    _done: mpsc::Sender<()>,
}

/// What is under way between this host and its peers.
#[derive(Default)]
pub(crate) struct ImportBroker {
    asked: HashMap<u64, Asked>,
    waiting: Vec<Waiting>,
    withdrawals: HashMap<u64, Withdrawal>,
    /// The number of the last question.
    number: u64,
}

impl ImportBroker {
    fn numbered(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// This host asks `owner` for a region: what to say to it. The answer is dropped unanswered when
    /// it is gone.
    pub(crate) fn ask(
        &mut self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        answer: Answer,
    ) -> Message {
        let number = self.numbered();
        self.asked.insert(number, Asked { owner, key, answer });
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        Message::Import { number, key, timeout }
    }

    /// `owner` has answered question `number`: which region that was about, and where the answer
    /// goes. `None` if nobody has asked it.
    pub(crate) fn answered(&mut self, number: u64, owner: HostId) -> Option<(RegionKey, Answer)> {
        self.asked.get(&number).filter(|asked| asked.owner == owner)?;
        self.asked.remove(&number).map(|Asked { key, answer, .. }| (key, answer))
    }

    /// `from` asks this host for a region, for so many milliseconds.
    ///
    /// # Errors
    /// In words, if it asks for more at once than any peer does.
    pub(crate) fn asked(
        &mut self,
        from: HostId,
        (number, key, timeout): (u64, RegionKey, u64),
        now: Instant,
    ) -> Result<(), String> {
        if self.waiting.iter().filter(|waiting| waiting.from == from).count() == PENDING_IMPORTS {
            return Err(format!("more than {PENDING_IMPORTS} unanswered imports"));
        }
        let deadline = deadline(now, Duration::from_millis(timeout));
        self.waiting.push(Waiting { from, number, key, deadline });
        Ok(())
    }

    /// The answers to peers whose region is there now, as `tell` says, or whose timeout has passed.
    pub(crate) fn answers(
        &mut self,
        now: Instant,
        tell: impl Fn(RegionKey, HostId) -> Option<RegionDescriptor>,
    ) -> Vec<(HostId, Message)> {
        let mut answers = Vec::new();
        self.waiting.retain(|Waiting { from, number, key, deadline }| {
            let region = tell(*key, *from);
            let is_due = region.is_some() || *deadline <= now;
            if is_due {
                answers.push((*from, Message::Imported { number: *number, region }));
            }
            !is_due
        });
        answers
    }

    /// When the first timeout of a peer passes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|waiting| waiting.deadline).min()
    }

    /// This host withdraws a region, which `users` must forget: the number of that. `done` is
    /// dropped when they all have, or are gone.
    pub(crate) fn withdraw(&mut self, users: BTreeSet<HostId>, done: mpsc::Sender<()>) -> u64 {
        let number = self.numbered();
        self.withdrawals.insert(number, Withdrawal { users, _done: done });
        number
    }

    /// `user` does not use the region of withdrawal `number` any more.
    pub(crate) fn forgotten(&mut self, number: u64, user: HostId) {
        if let Some(withdrawal) = self.withdrawals.get_mut(&number) {
            withdrawal.users.remove(&user);
            if withdrawal.users.is_empty() {
                self.withdrawals.remove(&number);
            }
        }
    }

    /// `peer` is gone: whoever waits for its answer sees the channel close.
    pub(crate) fn end(&mut self, peer: HostId) {
        self.asked.retain(|_, asked| asked.owner != peer);
        self.waiting.retain(|waiting| waiting.from != peer);
        self.withdrawals.retain(|_, withdrawal| {
            withdrawal.users.remove(&peer);
            !withdrawal.users.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, TryRecvError};
    use transport_api::Rights;

    const OWNER: HostId = HostId(1);
    const OTHER: HostId = HostId(2);
    const KEY: RegionKey = RegionKey(5);
    const TOLD: RegionDescriptor = RegionDescriptor {
        rights: Rights::ALL,
        generation: 0,
        len: 64,
        address: 4096,
        remote_key: 9,
    };

    /// Asks the owner for a region: the number of that, and where the answer comes.
    fn ask(broker: &mut ImportBroker) -> (u64, Receiver<Option<RemoteRegion>>) {
        let (answer, answered) = mpsc::channel();
        let asked = broker.ask(OWNER, KEY, Duration::from_secs(1), answer);
        let Message::Import { number, key: KEY, timeout: 1000 } = asked else {
            panic!("{asked:?}")
        };
        (number, answered)
    }

    #[test]
    fn an_answer_counts_once_and_from_the_one_who_was_asked() {
        let mut broker = ImportBroker::default();
        let (number, answered) = ask(&mut broker);
        assert!(broker.answered(number + 1, OWNER).is_none(), "no such question");
        assert!(broker.answered(number, OTHER).is_none(), "it was not asked");
        let (key, answer) = broker.answered(number, OWNER).expect("the answer");
        assert_eq!(key, KEY);
        drop(answer);
        assert!(matches!(answered.try_recv(), Err(TryRecvError::Disconnected)));
        assert!(broker.answered(number, OWNER).is_none(), "it has answered");
    }

    #[test]
    fn a_peer_is_answered_when_the_region_is_there_or_it_has_timed_out() {
        let (mut broker, now) = (ImportBroker::default(), Instant::now());
        broker.asked(OTHER, (7, KEY, 10), now).expect("one import");
        assert_eq!(broker.deadline(), Some(now + Duration::from_millis(10)));
        assert_eq!(broker.answers(now, |_, _| None), []);
        let there = broker.answers(now, |key, to| ((key, to) == (KEY, OTHER)).then_some(TOLD));
        assert_eq!(there, [(OTHER, Message::Imported { number: 7, region: Some(TOLD) })]);
        broker.asked(OTHER, (8, KEY, 10), now).expect("one import");
        let late = broker.answers(now + Duration::from_millis(10), |_, _| None);
        assert_eq!(late, [(OTHER, Message::Imported { number: 8, region: None })]);
        assert_eq!(broker.deadline(), None);
        // No timeout is so long that it overflows.
        broker.asked(OTHER, (9, KEY, u64::MAX), now).expect("one import");
        assert_eq!(broker.answers(now, |_, _| None), []);
    }

    #[test]
    fn a_peer_cannot_ask_without_end() {
        let (mut broker, now) = (ImportBroker::default(), Instant::now());
        for number in 0..PENDING_IMPORTS as u64 {
            broker.asked(OTHER, (number, KEY, 1000), now).expect("room");
        }
        assert!(broker.asked(OTHER, (0, KEY, 1000), now).is_err());
        assert!(broker.asked(OWNER, (0, KEY, 1000), now).is_ok(), "others can");
        broker.end(OTHER);
        assert!(broker.asked(OTHER, (0, KEY, 1000), now).is_ok());
    }

    #[test]
    fn a_withdrawal_ends_when_all_users_have_forgotten_and_nobody_else_counts() {
        let mut broker = ImportBroker::default();
        let withdraw = |broker: &mut ImportBroker, users: &[HostId]| {
            let (done, ended) = mpsc::channel();
            (broker.withdraw(users.iter().copied().collect(), done), ended)
        };
        let is_over = |ended: &Receiver<()>| ended.try_recv() == Err(TryRecvError::Disconnected);
        let (number, ended) = withdraw(&mut broker, &[HostId(0), OWNER]);
        broker.forgotten(number, OTHER);
        broker.forgotten(number + 1, OWNER);
        broker.forgotten(number, OWNER);
        broker.forgotten(number, OWNER);
        assert!(!is_over(&ended), "this host still uses it");
        broker.forgotten(number, HostId(0));
        assert!(is_over(&ended));
        let (_, ended) = withdraw(&mut broker, &[OWNER]);
        broker.end(OTHER);
        assert!(!is_over(&ended));
        broker.end(OWNER);
        assert!(is_over(&ended), "it cannot use it any more");
    }

    #[test]
    fn whoever_waits_for_a_peer_that_is_gone_hears_of_it() {
        let mut broker = ImportBroker::default();
        let (number, answered) = ask(&mut broker);
        broker.end(OTHER);
        assert!(matches!(answered.try_recv(), Err(TryRecvError::Empty)));
        broker.end(OWNER);
        assert!(matches!(answered.try_recv(), Err(TryRecvError::Disconnected)));
        assert!(broker.answered(number, OWNER).is_none());
    }
}
