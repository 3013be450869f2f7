//! [`Dealings`]: the imports and withdrawals that are under way between this host and its peers,
//! without anybody to talk to.
//!
//! ```text
//!   importer                  owner               owner                     user
//!   Ask    ---------------->                      Revoke  ---------------->
//!          <----------------  Told                        <----------------  Forgotten
//! ```
//!
//! Each is known by a number of the one who began it. Who answers what it was not asked, or what it
//! has answered already, is not heard: the one who asked may have timed out.

use crate::message::{Message, Told};
use primitive::limits::PENDING_IMPORTS;
use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};
use transport_api::{HostId, Importer, RegionKey, deadline};

/// What is done when a withdrawn region is used no more, or all were given up that use it.
pub(crate) type Done = Box<dyn FnOnce() + Send>;

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
    importer: Importer,
}

/// A withdrawal of this host.
struct Withdrawal {
    /// Who has not forgotten the region; this host itself may be among them.
    users: BTreeSet<HostId>,
    /// When users that have not forgotten it are given up.
    deadline: Instant,
    /// What the carrier will say when this host's threads use it no more, until it has.
    carrier: Option<u64>,
    done: Done,
}

impl Withdrawal {
    fn is_over(&self) -> bool {
        self.users.is_empty() && self.carrier.is_none()
    }
}

/// What is under way between this host and its peers.
#[derive(Default)]
pub(crate) struct Dealings {
    asked: HashMap<u64, Asked>,
    waiting: Vec<Waiting>,
    withdrawals: HashMap<u64, Withdrawal>,
    /// What the carrier has said of withdrawals that are still to begin here.
    quiet: BTreeSet<u64>,
    /// The number of the last question.
    number: u64,
}

impl Dealings {
    fn numbered(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// This host asks `owner` for a region: what to say to it. The importer is dropped unanswered
    /// when it is gone.
    pub(crate) fn ask(
        &mut self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        importer: Importer,
    ) -> Message {
        let number = self.numbered();
        self.asked.insert(number, Asked { owner, key, importer });
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        Message::Ask { number, key, timeout }
    }

    /// `owner` has answered question `number`: which region that was about, and where the answer
    /// goes. `None` if nobody has asked it.
    pub(crate) fn answered(&mut self, number: u64, owner: HostId) -> Option<(RegionKey, Importer)> {
        self.asked.get(&number).filter(|asked| asked.owner == owner)?;
        self.asked.remove(&number).map(|Asked { key, importer, .. }| (key, importer))
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
        tell: impl Fn(RegionKey, HostId) -> Option<Told>,
    ) -> Vec<(HostId, Message)> {
        let mut answers = Vec::new();
        self.waiting.retain(|Waiting { from, number, key, deadline }| {
            let region = tell(*key, *from);
            let is_due = region.is_some() || *deadline <= now;
            if is_due {
                answers.push((*from, Message::Told { number: *number, region }));
            }
            !is_due
        });
        answers
    }

    /// When the first timeout of a peer passes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let withdrawals = self.withdrawals.values().filter(|it| !it.users.is_empty());
        let imports = self.waiting.iter().map(|waiting| waiting.deadline);
        imports.chain(withdrawals.map(|it| it.deadline)).min()
    }

    /// This host withdraws a region, which `users` must forget by `deadline`, and of which the
    /// carrier will say `carrier`, if anything: the number of that. `done` is called when they all
    /// have, are gone, or are given up.
    pub(crate) fn withdraw(
        &mut self,
        users: BTreeSet<HostId>,
        deadline: Instant,
        carrier: Option<u64>,
        done: Done,
    ) -> u64 {
        let number = self.numbered();
        let carrier = carrier.filter(|token| !self.quiet.remove(token));
        self.withdrawals.insert(number, Withdrawal { users, deadline, carrier, done });
        self.settle();
        number
    }

    /// The carrier says of the withdrawal with this token that this host's threads are past it.
    pub(crate) fn carrier_is_quiet(&mut self, token: u64) {
        match self.withdrawals.values_mut().find(|it| it.carrier == Some(token)) {
            Some(withdrawal) => withdrawal.carrier = None,
            None => drop(self.quiet.insert(token)),
        }
        self.settle();
    }

    /// Gives up the users of withdrawn regions that have not forgotten them in time; which.
    pub(crate) fn expire(&mut self, now: Instant) -> BTreeSet<HostId> {
        let late = self.withdrawals.values_mut().filter(|it| it.deadline <= now);
        let users = late.flat_map(|it| std::mem::take(&mut it.users)).collect();
        self.settle();
        users
    }

    /// Ends the withdrawals that are over.
    fn settle(&mut self) {
        for (_, withdrawal) in self.withdrawals.extract_if(|_, it| it.is_over()) {
            (withdrawal.done)();
        }
    }

    /// `user` does not use the region of withdrawal `number` any more.
    pub(crate) fn forgotten(&mut self, number: u64, user: HostId) {
        if let Some(withdrawal) = self.withdrawals.get_mut(&number) {
            withdrawal.users.remove(&user);
            self.settle();
        }
    }

    /// `peer` is gone: whoever waits for its answer sees the channel close.
    pub(crate) fn end(&mut self, peer: HostId) {
        self.asked.retain(|_, asked| asked.owner != peer);
        self.waiting.retain(|waiting| waiting.from != peer);
        for withdrawal in self.withdrawals.values_mut() {
            withdrawal.users.remove(&peer);
        }
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{self, Receiver, TryRecvError};
    use transport_api::{RegionError, RemoteRegion, Rights};

    const OWNER: HostId = HostId(1);
    const OTHER: HostId = HostId(2);
    const KEY: RegionKey = RegionKey(5);
    const TOLD: Told =
        Told { rights: Rights::ALL, generation: 0, len: 64, address: 4096, remote_key: 9 };

    /// Asks the owner for a region: the number of that, and where the answer comes.
    fn ask(dealings: &mut Dealings) -> (u64, Receiver<Result<RemoteRegion, RegionError>>) {
        let (answer, answered) = mpsc::channel();
        let importer = Importer::Blocked(answer);
        let asked = dealings.ask(OWNER, KEY, Duration::from_secs(1), importer);
        let Message::Ask { number, key: KEY, timeout: 1000 } = asked else { panic!("{asked:?}") };
        (number, answered)
    }

    #[test]
    fn an_answer_counts_once_and_from_the_one_who_was_asked() {
        let mut dealings = Dealings::default();
        let (number, answered) = ask(&mut dealings);
        assert!(dealings.answered(number + 1, OWNER).is_none(), "no such question");
        assert!(dealings.answered(number, OTHER).is_none(), "it was not asked");
        let (key, answer) = dealings.answered(number, OWNER).expect("the answer");
        assert_eq!(key, KEY);
        drop(answer);
        assert!(matches!(answered.try_recv(), Err(TryRecvError::Disconnected)));
        assert!(dealings.answered(number, OWNER).is_none(), "it has answered");
    }

    #[test]
    fn a_peer_is_answered_when_the_region_is_there_or_it_has_timed_out() {
        let (mut dealings, now) = (Dealings::default(), Instant::now());
        dealings.asked(OTHER, (7, KEY, 10), now).expect("one import");
        assert_eq!(dealings.deadline(), Some(now + Duration::from_millis(10)));
        assert_eq!(dealings.answers(now, |_, _| None), []);
        let there = dealings.answers(now, |key, to| ((key, to) == (KEY, OTHER)).then_some(TOLD));
        assert_eq!(there, [(OTHER, Message::Told { number: 7, region: Some(TOLD) })]);
        dealings.asked(OTHER, (8, KEY, 10), now).expect("one import");
        let late = dealings.answers(now + Duration::from_millis(10), |_, _| None);
        assert_eq!(late, [(OTHER, Message::Told { number: 8, region: None })]);
        assert_eq!(dealings.deadline(), None);
        // No timeout is so long that it overflows.
        dealings.asked(OTHER, (9, KEY, u64::MAX), now).expect("one import");
        assert_eq!(dealings.answers(now, |_, _| None), []);
    }

    #[test]
    fn a_peer_cannot_ask_without_end() {
        let (mut dealings, now) = (Dealings::default(), Instant::now());
        for number in 0..PENDING_IMPORTS as u64 {
            dealings.asked(OTHER, (number, KEY, 1000), now).expect("room");
        }
        assert!(dealings.asked(OTHER, (0, KEY, 1000), now).is_err());
        assert!(dealings.asked(OWNER, (0, KEY, 1000), now).is_ok(), "others can");
        dealings.end(OTHER);
        assert!(dealings.asked(OTHER, (0, KEY, 1000), now).is_ok());
    }

    fn withdraw(
        dealings: &mut Dealings,
        users: &[HostId],
        deadline: Instant,
        carrier: Option<u64>,
    ) -> (u64, Receiver<()>) {
        let (done, ended) = mpsc::channel();
        let done = Box::new(move || done.send(()).expect("a test"));
        (dealings.withdraw(users.iter().copied().collect(), deadline, carrier, done), ended)
    }

    fn is_over(ended: &Receiver<()>) -> bool {
        ended.try_recv() == Ok(())
    }

    #[test]
    fn a_withdrawal_waits_for_the_carrier_and_gives_late_users_up() {
        let (mut dealings, now) = (Dealings::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        let (_, ended) = withdraw(&mut dealings, &[OWNER], later, Some(7));
        assert_eq!(dealings.deadline(), Some(later));
        assert!(dealings.expire(now).is_empty() && !is_over(&ended));
        assert_eq!(dealings.expire(later), [OWNER].into());
        assert!(!is_over(&ended), "threads of this host may still use it");
        assert_eq!(dealings.deadline(), None);
        dealings.carrier_is_quiet(8);
        assert!(!is_over(&ended), "another one");
        dealings.carrier_is_quiet(7);
        assert!(is_over(&ended));
        let (_, ended) = withdraw(&mut dealings, &[], later, Some(8));
        assert!(is_over(&ended), "the carrier has said so before");
    }

    #[test]
    fn a_withdrawal_ends_when_all_users_have_forgotten_and_nobody_else_counts() {
        let mut dealings = Dealings::default();
        let withdraw = |dealings: &mut Dealings, users: &[HostId]| {
            withdraw(dealings, users, Instant::now() + Duration::from_secs(100), None)
        };
        let (number, ended) = withdraw(&mut dealings, &[HostId(0), OWNER]);
        dealings.forgotten(number, OTHER);
        dealings.forgotten(number + 1, OWNER);
        dealings.forgotten(number, OWNER);
        dealings.forgotten(number, OWNER);
        assert!(!is_over(&ended), "this host still uses it");
        dealings.forgotten(number, HostId(0));
        assert!(is_over(&ended));
        let (_, ended) = withdraw(&mut dealings, &[OWNER]);
        dealings.end(OTHER);
        assert!(!is_over(&ended));
        dealings.end(OWNER);
        assert!(is_over(&ended), "it cannot use it any more");
    }

    #[test]
    fn whoever_waits_for_a_peer_that_is_gone_hears_of_it() {
        let mut dealings = Dealings::default();
        let (number, answered) = ask(&mut dealings);
        dealings.end(OTHER);
        assert!(matches!(answered.try_recv(), Err(TryRecvError::Empty)));
        dealings.end(OWNER);
        assert!(matches!(answered.try_recv(), Err(TryRecvError::Disconnected)));
        assert!(dealings.answered(number, OWNER).is_none());
    }
}
