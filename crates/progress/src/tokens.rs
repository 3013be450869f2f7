//! The tokens of a thread's operations: a slab, whose entries fibers wait for.
//!
//! ```text
//!   begin --> waiting --event--> ended --take--> free
//!                |                 |
//!             abandon           abandon
//!                v                 v
//!            abandoned --event--> free
//! ```
//!
//! A token is the place of its entry in the slab and the entry's generation, so that an event that
//! comes twice never ends a later operation. A fiber is named by its id, which means nothing once
//! the fiber has ended: an entry never refers to the memory of a fiber.

use fiber::FiberId;
use slab::Slab;
use transport_api::{HostId, LossReason, OpError, RegionError, RemoteRegion};

/// Names one operation of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    place: u32,
    generation: u32,
}

impl Token {
    /// The token as lanes carry it.
    pub(crate) fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.place)
    }

    /// The token that [`word`](Self::word) turned into `word`.
    pub(crate) fn from_word(word: u64) -> Token {
        Token { place: word as u32, generation: (word >> 32) as u32 }
    }
}

/// How an operation ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// With a value, or an error.
    Operation,
    /// With a region, or an error.
    Import,
}

/// How an operation has ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Operation(Result<u64, OpError>),
    Import(Result<RemoteRegion, RegionError>),
}

impl Outcome {
    fn kind(&self) -> Kind {
        match self {
            Outcome::Operation(_) => Kind::Operation,
            Outcome::Import(_) => Kind::Import,
        }
    }

    /// How an operation of this kind ends when `host` is gone.
    pub(crate) fn lost(kind: Kind, host: HostId, reason: &LossReason) -> Outcome {
        match kind {
            Kind::Operation => Outcome::Operation(Err(OpError::PeerLost(host, reason.clone()))),
            Kind::Import => Outcome::Import(Err(RegionError::PeerLost(host, reason.clone()))),
        }
    }
}

#[derive(Debug)]
enum State {
    /// Under way; the fiber that waits for it, if one does.
    Waiting(Option<FiberId>),
    /// Under way, and its result is not wanted any more.
    Abandoned,
    /// Its result has not been taken.
    Ended(Outcome),
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    host: HostId,
    kind: Kind,
    state: State,
}

/// An event names no operation that is under way with its host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownToken;

/// The operations of one thread.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    entries: Slab<Entry>,
    generation: u32,
    under_way: usize,
}

impl Tokens {
    /// Operations that have not ended, abandoned ones included.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// A token for an operation with `host`.
    pub(crate) fn begin(&mut self, host: HostId, kind: Kind) -> Token {
        self.under_way += 1;
        self.insert(host, kind, State::Waiting(None))
    }

    /// A token for an operation that has ended already.
    pub(crate) fn ended(&mut self, host: HostId, outcome: Outcome) -> Token {
        self.insert(host, outcome.kind(), State::Ended(outcome))
    }

    fn insert(&mut self, host: HostId, kind: Kind, state: State) -> Token {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let place = self.entries.insert(Entry { generation, host, kind, state });
        let place = u32::try_from(place).expect("fewer than four billion operations of a thread");
        Token { place, generation }
    }

    fn entry(&mut self, token: Token) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(token.place as usize)?;
        (entry.generation == token.generation).then_some(entry)
    }

    /// Takes back the token of an operation that was refused when it was to be started.
    pub(crate) fn refuse(&mut self, token: Token) {
        let Some(entry) = self.entry(token) else { return };
        // Its host may have been given up meanwhile, which has ended it.
        let is_under_way = !matches!(entry.state, State::Ended(_));
        self.entries.remove(token.place as usize);
        self.under_way -= usize::from(is_under_way);
    }

    /// An event of the lane to `host` has ended this operation. Returns the fiber to wake.
    ///
    /// # Errors
    /// [`UnknownToken`], if no such operation is under way with that host.
    pub(crate) fn end(
        &mut self,
        token: Token,
        host: HostId,
        outcome: Outcome,
    ) -> Result<Option<FiberId>, UnknownToken> {
        let entry = self.entry(token).ok_or(UnknownToken)?;
        if entry.host != host || entry.kind != outcome.kind() {
            return Err(UnknownToken);
        }
        let fiber = match entry.state {
            State::Ended(_) => return Err(UnknownToken),
            State::Abandoned => {
                self.entries.remove(token.place as usize);
                None
            }
            State::Waiting(fiber) => {
                entry.state = State::Ended(outcome);
                fiber
            }
        };
        self.under_way -= 1;
        Ok(fiber)
    }

    /// Ends every operation with the hosts that are `concerned`; returns the fibers to wake.
    pub(crate) fn lose(
        &mut self,
        concerned: impl Fn(HostId) -> bool,
        reason: &LossReason,
    ) -> Vec<FiberId> {
        let under_way = |entry: &Entry| !matches!(entry.state, State::Ended(_));
        let lost: Vec<(Token, HostId, Kind)> = self
            .entries
            .iter()
            .filter(|(_, entry)| concerned(entry.host) && under_way(entry))
            .map(|(place, entry)| {
                let token = Token { place: place as u32, generation: entry.generation };
                (token, entry.host, entry.kind)
            })
            .collect();
        let ended = lost.into_iter().map(|(token, host, kind)| {
            self.end(token, host, Outcome::lost(kind, host, reason)).ok().flatten()
        });
        ended.flatten().collect()
    }

    /// The result, once; `None` while the operation is under way.
    pub(crate) fn take(&mut self, token: Token) -> Option<Outcome> {
        if !matches!(self.entry(token)?.state, State::Ended(_)) {
            return None;
        }
        match self.entries.remove(token.place as usize).state {
            State::Ended(outcome) => Some(outcome),
            State::Waiting(_) | State::Abandoned => None,
        }
    }

    /// Whether there is a result to take.
    pub(crate) fn has_ended(&mut self, token: Token) -> bool {
        self.entry(token).is_some_and(|entry| matches!(entry.state, State::Ended(_)))
    }

    /// Sets the fiber that waits for the operation, or clears it.
    pub(crate) fn set_waiter(&mut self, token: Token, fiber: Option<FiberId>) {
        if let Some(Entry { state: State::Waiting(waiter), .. }) = self.entry(token) {
            *waiter = fiber;
        }
    }

    /// The result is not wanted any more. An operation that is under way keeps its token until it
    /// ends.
    pub(crate) fn abandon(&mut self, token: Token) {
        let Some(entry) = self.entry(token) else { return };
        match entry.state {
            State::Waiting(_) => entry.state = State::Abandoned,
            State::Ended(_) => {
                self.entries.remove(token.place as usize);
            }
            State::Abandoned => {}
        }
    }

    /// Entries of the slab.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Model {
        Waiting(HostId, Option<u64>),
        Abandoned(HostId),
        Ended(u64),
    }

    #[derive(Clone, Debug)]
    enum Step {
        Begin(u32),
        Wait(usize, u64),
        End(usize, u32, u64),
        Import(usize, u32),
        Take(usize),
        Abandon(usize),
        Lose(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0u32..3).prop_map(Step::Begin),
            2 => (any::<usize>(), 0u64..9).prop_map(|(which, fiber)| Step::Wait(which, fiber)),
            3 => (any::<usize>(), 0u32..3, any::<u64>())
                .prop_map(|(which, host, value)| Step::End(which, host, value)),
            1 => (any::<usize>(), 0u32..3).prop_map(|(which, host)| Step::Import(which, host)),
            2 => any::<usize>().prop_map(Step::Take),
            2 => any::<usize>().prop_map(Step::Abandon),
            1 => (0u32..3).prop_map(Step::Lose),
        ];
        prop::collection::vec(step, 0..200)
    }

    fn reason() -> LossReason {
        LossReason::Connection("a test".into())
    }

    /// What a lost operation is known by in the model.
    const LOST: u64 = u64::MAX;

    fn value_of(outcome: Outcome) -> u64 {
        match outcome {
            Outcome::Operation(Ok(value)) => value,
            Outcome::Operation(Err(OpError::PeerLost(..))) => LOST,
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn tokens_do_what_a_map_of_states_does(steps in steps()) {
            let mut tokens = Tokens::default();
            let mut model: HashMap<u64, Model> = HashMap::new();
            let mut all: Vec<Token> = Vec::new();
            let one = |all: &[Token], which: usize| all.get(which % all.len().max(1)).copied();
            for step in steps {
                match step {
                    Step::Begin(host) => {
                        let token = tokens.begin(HostId(host), Kind::Operation);
                        prop_assert_eq!(Token::from_word(token.word()), token);
                        let new = Model::Waiting(HostId(host), None);
                        prop_assert!(model.insert(token.word(), new).is_none());
                        all.push(token);
                    }
                    Step::Wait(which, fiber) => {
                        let Some(token) = one(&all, which) else { continue };
                        tokens.set_waiter(token, Some(FiberId::from_bits(fiber)));
                        if let Some(Model::Waiting(_, waiter)) = model.get_mut(&token.word()) {
                            *waiter = Some(fiber);
                        }
                    }
                    Step::End(which, host, value) => {
                        let Some(token) = one(&all, which) else { continue };
                        let value = value >> 1;
                        let ended = tokens.end(token, HostId(host), Outcome::Operation(Ok(value)));
                        let expected = match model.get(&token.word()).copied() {
                            Some(Model::Waiting(of, waiter)) if of == HostId(host) => {
                                model.insert(token.word(), Model::Ended(value));
                                Ok(waiter.map(FiberId::from_bits))
                            }
                            Some(Model::Abandoned(of)) if of == HostId(host) => {
                                model.remove(&token.word());
                                Ok(None)
                            }
                            _ => Err(UnknownToken),
                        };
                        prop_assert_eq!(ended, expected);
                    }
                    Step::Import(which, host) => {
                        let Some(token) = one(&all, which) else { continue };
                        let outcome = Outcome::lost(Kind::Import, HostId(host), &reason());
                        let ended = tokens.end(token, HostId(host), outcome);
                        prop_assert_eq!(ended, Err(UnknownToken), "another kind of operation");
                    }
                    Step::Take(which) => {
                        let Some(token) = one(&all, which) else { continue };
                        let taken = tokens.take(token).map(value_of);
                        let expected = match model.get(&token.word()).copied() {
                            Some(Model::Ended(value)) => {
                                model.remove(&token.word());
                                Some(value)
                            }
                            _ => None,
                        };
                        prop_assert_eq!(taken, expected);
                    }
                    Step::Abandon(which) => {
                        let Some(token) = one(&all, which) else { continue };
                        tokens.abandon(token);
                        match model.get(&token.word()).copied() {
                            Some(Model::Waiting(host, _)) => {
                                model.insert(token.word(), Model::Abandoned(host));
                            }
                            Some(Model::Ended(_)) => {
                                model.remove(&token.word());
                            }
                            Some(Model::Abandoned(_)) | None => {}
                        }
                    }
                    Step::Lose(host) => {
                        let mut woken = tokens.lose(|other| other == HostId(host), &reason());
                        let mut expected = Vec::new();
                        model.retain(|_, state| match *state {
                            Model::Waiting(of, waiter) if of == HostId(host) => {
                                expected.extend(waiter.map(FiberId::from_bits));
                                *state = Model::Ended(LOST);
                                true
                            }
                            Model::Abandoned(of) => of != HostId(host),
                            _ => true,
                        });
                        woken.sort();
                        expected.sort();
                        prop_assert_eq!(woken, expected);
                    }
                }
                let under_way = model.values().filter(|one| !matches!(one, Model::Ended(_)));
                prop_assert_eq!(tokens.under_way(), under_way.count());
                prop_assert_eq!(tokens.len(), model.len());
            }
        }
    }
}
