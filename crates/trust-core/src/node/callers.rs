//! [`Callers`]: the calls that wait for a launched closure, as they travel with it.

use std::cell::{Ref, RefCell};

use fiber::FiberId;
use primitive::limits::LAUNCH_DEPTH;
use serde::{Deserialize, Serialize, Serializer};

use crate::node::awaited::ReplyTo;

/// The calls that wait for a launched closure, the first one of the chain first. One word, since mostly
/// the list is empty.
#[derive(Clone, Default, Deserialize)]
#[serde(try_from = "Vec<(u32, u64)>")]
pub(crate) struct Callers(Option<Box<Chain>>);

#[derive(Clone)]
struct Chain(Vec<ReplyTo>);

impl Callers {
    /// Those that wait for a launch of a closure for which these wait.
    pub(super) fn with(&self, next: ReplyTo) -> Callers {
        Callers(Some(Box::new(Chain(self.calls().iter().copied().chain([next]).collect()))))
    }

    /// Whether no launch waits.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn calls(&self) -> &[ReplyTo] {
        self.0.as_ref().map(|chain| &chain.0[..]).unwrap_or_default()
    }
}

impl Serialize for Callers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.calls().serialize(serializer)
    }
}

/// They are names only: nothing replies to them.
impl TryFrom<Vec<(u32, u64)>> for Callers {
    type Error = String;

    fn try_from(callers: Vec<(u32, u64)>) -> Result<Self, String> {
        if callers.len() > LAUNCH_DEPTH {
            return Err(too_deep());
        }
        let callers = callers.into_iter().map(|(thread, token)| ReplyTo { thread, token });
        let chain: Vec<_> = callers.collect();
        Ok(Callers((!chain.is_empty()).then(|| Box::new(Chain(chain)))))
    }
}

pub(super) fn too_deep() -> String {
    format!(
        "launches nested more than {LAUNCH_DEPTH} deep: end with `launch_then`, or a spawned fiber"
    )
}

/// A launch, as it travels to its trustee.
#[derive(Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) reply_to: ReplyTo,
    pub(crate) callers: Callers,
    /// Whether the caller waits for a limited time only. Then the callers count until the closure has
    /// its latch, and no longer: while it runs, they may have stopped waiting for it.
    pub(crate) is_timed: bool,
}

/// The launches that the fibers of a node run, by the fiber's index. A worker has one scheduler, whose
/// fibers have different indices, and a fiber cannot enter another.
#[derive(Default)]
pub(crate) struct Launched(RefCell<Vec<Option<(FiberId, Call)>>>);

impl Launched {
    /// Notes what a fiber runs.
    ///
    /// # Panics
    /// If a fiber of another scheduler with this index runs a launch: the latches of this node would
    /// take the two for one.
    #[inline]
    pub(super) fn insert(&self, fiber: FiberId, call: Call) {
        let mut launched = self.0.borrow_mut();
        if launched.len() <= fiber.index() {
            grow(&mut launched, fiber);
        }
        let place = &mut launched[fiber.index()];
        assert!(
            place.is_none(),
            "launched closures run in more than one fiber scheduler of a thread"
        );
        *place = Some((fiber, call));
    }

    /// The fiber has ended what it ran.
    #[inline]
    pub(super) fn remove(&self, fiber: FiberId) {
        if let Some(place) = self.0.borrow_mut().get_mut(fiber.index()) {
            drop(place.take_if(|(runs, _)| *runs == fiber));
        }
    }

    /// Changes what is noted of a fiber.
    #[inline]
    pub(super) fn change(&self, fiber: FiberId, change: impl FnOnce(&mut Call)) {
        match self.0.borrow_mut().get_mut(fiber.index()) {
            Some(Some((runs, call))) if *runs == fiber => change(call),
            _ => {}
        }
    }

    /// Reads what is noted of fibers.
    #[inline(always)]
    pub(super) fn borrow(&self) -> LaunchedBy<'_> {
        LaunchedBy(self.0.borrow())
    }
}

#[cold]
#[inline(never)]
fn grow(launched: &mut Vec<Option<(FiberId, Call)>>, fiber: FiberId) {
    launched.resize_with(fiber.index() + 1, || None);
}

/// The launches of a node while they are read.
pub(super) struct LaunchedBy<'a>(Ref<'a, Vec<Option<(FiberId, Call)>>>);

impl LaunchedBy<'_> {
    /// The launch that a fiber runs, if it runs one.
    #[inline(always)]
    pub(super) fn get(&self, fiber: FiberId) -> Option<&Call> {
        let (runs, call) = self.0.get(fiber.index())?.as_ref()?;
        (*runs == fiber).then_some(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn more_callers_than_a_chain_may_have_are_refused() {
        let caller: ReplyTo = codec::decode(&codec::encode_to_vec(&(7u32, 7u64)).unwrap()).unwrap();
        for (count, taken) in [(0, true), (LAUNCH_DEPTH, true), (LAUNCH_DEPTH + 1, false)] {
            let bytes = codec::encode_to_vec(&vec![caller; count]).unwrap();
            let decoded = codec::decode::<Callers>(&bytes);
            assert_eq!(
                decoded.as_ref().map(|callers| callers.calls().len()).ok(),
                taken.then_some(count)
            );
            if let Err(error) = decoded {
                assert!(error.to_string().contains("nested more than"), "{error}");
            }
        }
        let mut claims = codec::encode_to_vec(&vec![caller]).unwrap();
        claims[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(codec::decode::<Callers>(&claims).is_err(), "more than there are");
    }
}
