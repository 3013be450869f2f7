//! [`Updates`]: many calls of one closure on one property, each with a key and a value, that travel as
//! one request.
//!
//! For layers above, which collect updates by property and decide when they are sent:
//!
//! ```text
//!   push  key, value  ->  | .. | key, value | key, value | ..    a buffer of the caller's
//!   send              ->  one request: the closure runs once for each of them, in their order
//! ```

use std::fmt;
use std::marker::PhantomData;

use crate::Trust;
use crate::api::apply::raise;
use crate::api::callback::{Callback, Tell};
use crate::client::completion::WaitForRoom;
use crate::closure::call::run_each;
use crate::closure::capture::with_capture;
use crate::closure::context::Context;
use crate::closure::invoke::{Delegable, Plain, check_captures};
use crate::codec::{AsView, Entries, Portable};
use crate::error::{BadValue, CodecError, DelegateError};
use crate::node::racks::outside_of;
use crate::node::{CallSite, Node, current, on_node};

/// Updates of one property by the closure `F`, each with a key, seen as a `K`, and a value, that have
/// not been sent.
#[doc(hidden)]
pub struct Updates<K: ?Sized, V, F> {
    entries: Entries,
    closure: F,
    _entry: PhantomData<fn(&K, V)>,
}

impl<K: ?Sized, V, F> fmt::Debug for Updates<K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updates").field("count", &self.entries.count()).finish_non_exhaustive()
    }
}

impl<K, V, F> Updates<K, V, F>
where
    K: AsView + ?Sized + 'static,
    V: Portable,
    F: Delegable + Clone,
{
    /// None yet.
    pub fn new(closure: F) -> Self {
        const { check_captures::<F>() };
        Updates { entries: Entries::new(size_of::<F>()), closure, _entry: PhantomData }
    }

    /// Takes all of them out. None are left, of the same closure.
    #[allow(clippy::clone_on_copy)] // On nightly, closures that capture are not `Copy`.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Updates::new(self.closure.clone()))
    }

    /// How many there are.
    #[cfg_attr(optimised, inline(always))]
    pub fn count(&self) -> usize {
        self.entries.count()
    }

    /// Runs an update at once, if the property is this thread's own, no delegated code runs and none
    /// waits here; else gives it back. A failure is reported with `place`. The fiber may give way first.
    ///
    /// # Errors
    /// The update, for [`push`](Self::push).
    ///
    /// # Panics
    /// If the closure does.
    #[cfg_attr(optimised, inline(always))]
    pub fn run_here<'k, T: 'static>(
        &self,
        to: &Trust<T>,
        key: K::View<'k>,
        value: V,
        place: CallSite,
    ) -> Result<(), (K::View<'k>, V)>
    where
        F: for<'a> Fn(&mut T, K::View<'a>, V),
    {
        if let Some(node) = current(to)
            && to.is_at(node)
            && self.count() == 0
        {
            // First, since another fiber may enter a closure meanwhile.
            node.count_inline_call();
            if node.context().is_free() {
                let closure = &self.closure;
                let run = |property: &mut T| closure(property, key, value);
                if let Err(error) = to.own().run(node, Plain(run), (), place) {
                    node.report(*error, Some(place));
                }
                node.run_deferred();
                return Ok(());
            }
        }
        Err((key, value))
    }

    /// Adds an update, and returns the bytes of all that wait. A failure is reported with `place`.
    ///
    /// # Panics
    /// If the code of `key` or `value` does while they are encoded.
    #[cfg_attr(optimised, inline(always))]
    pub fn push<T: 'static>(
        &mut self,
        to: &Trust<T>,
        key: K::View<'_>,
        value: V,
        place: CallSite,
    ) -> usize
    where
        F: for<'a> Fn(&mut T, K::View<'a>, V),
    {
        if let Err(error) = self.entries.push(&key, &value) {
            self.unencodable(to, error, place);
        }
        if self.count() > 0 { self.entries.bytes() } else { 0 }
    }

    #[cold]
    #[inline(never)]
    fn unencodable<T: 'static>(&self, to: &Trust<T>, error: CodecError, place: CallSite) {
        on_node(|node| {
            let error = node.unencodable::<(K::View<'_>, V)>(to.target().home, error);
            node.report(error, Some(place));
        });
    }

    /// Sends all of them to their property, and calls `done` on this thread when they have run, or
    /// failed, which is reported with `place`. A fiber waits for room.
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[track_caller]
    pub fn send<T: 'static>(
        &mut self,
        to: &Trust<T>,
        place: CallSite,
        done: impl FnOnce() + 'static,
    ) where
        F: for<'a> Fn(&mut T, K::View<'a>, V),
    {
        if self.send_as(to, Served { done, place, waits: true }).is_err() {
            raise(&outside_of(to.home));
        }
    }

    /// As [`send`](Self::send), without waiting for room. Outside the rack and after its end it only
    /// calls `done`: for destructors.
    pub fn send_or_drop<T: 'static>(
        &mut self,
        to: &Trust<T>,
        place: CallSite,
        done: impl FnOnce() + 'static,
    ) where
        F: for<'a> Fn(&mut T, K::View<'a>, V),
    {
        let served = Served { done, place, waits: false };
        let outcome = match on_node(Node::is_closed) {
            Some(false) => self.send_as(to, served),
            _ => Err(served),
        };
        if let Err(served) = outcome {
            (served.done)();
        }
    }

    /// # Errors
    /// `served`, if the thread does not belong to the rack.
    #[allow(clippy::clone_on_copy)] // On nightly, closures that capture are not `Copy`.
    #[inline(never)]
    fn send_as<T: 'static, C: FnOnce() + 'static>(
        &mut self,
        to: &Trust<T>,
        served: Served<C>,
    ) -> Result<(), Served<C>>
    where
        F: for<'a> Fn(&mut T, K::View<'a>, V),
    {
        if self.count() == 0 {
            // Not even a copy of the closure, which nothing would drop.
            return Ok(());
        }
        let (entries, closure) = (&mut self.entries, self.closure.clone());
        match current(to) {
            Some(node) if to.is_used_by(node) => {
                let tell = Tell(served, PhantomData);
                let trustee = to.target().home;
                with_capture(closure, |capture| {
                    entries.take(capture, |bytes| match bytes {
                        Ok(bytes) => node.request_each::<T, K, V, F, _>(to.target(), bytes, tell),
                        Err(error) => {
                            tell.0.failed(node.unencodable::<(K::View<'_>, V)>(trustee, error));
                        }
                    })
                });
                Ok(())
            }
            Some(node) if to.is_at(node) => {
                // The closure goes there as it is, and not by its bytes.
                let front = vec![0; size_of::<F>()];
                let bytes = entries.take(&front, |bytes| bytes.map(|b| b[front.len()..].to_vec()));
                if let Some(bytes) = bytes {
                    run_here::<T, K, V, F, C>(node, to, closure, bytes, served);
                }
                Ok(())
            }
            _ => Err(served),
        }
    }
}

/// Runs updates of a property of this thread: now, or when the delegated code that runs now has ended.
fn run_here<T, K, V, F, C>(
    node: &Node,
    to: &Trust<T>,
    closure: F,
    bytes: Result<Vec<u8>, CodecError>,
    served: Served<C>,
) where
    T: 'static,
    K: AsView + ?Sized + 'static,
    V: Portable,
    F: for<'a> Fn(&mut T, K::View<'a>, V) + Delegable,
    C: FnOnce() + 'static,
{
    // As in `Trust::cast_inline`: the property stays until then.
    let (property, place) = (to.own(), served.place);
    node.run_or_defer(move |node| {
        let run = |property: &mut T| {
            let bytes = bytes.map_err(BadValue::unencodable::<(K::View<'_>, V)>)?;
            run_each::<T, K, V, F>(property, &closure, &bytes, true)
        };
        let result = property.run_caught(node, Plain(run), (), place);
        let _context = node.context().enter(Context::Callback);
        match result {
            Ok(Ok(())) => served.done(()),
            Ok(Err(value)) => served.failed(value.into_arguments_error(node.me)),
            Err(error) => served.failed(*error),
        }
    });
}

/// What is done when a request with updates has ended.
struct Served<C> {
    done: C,
    place: CallSite,
    waits: bool,
}

impl<C: FnOnce() + 'static> Callback<()> for Served<C> {
    const HEARS_FAILURES: bool = true;

    fn done(self, (): ()) {
        (self.done)();
    }

    fn failed(self, error: DelegateError) {
        on_node(|node| node.report(error, Some(self.place)));
        (self.done)();
    }

    fn waits_for_room(&self) -> WaitForRoom {
        if self.waits { WaitForRoom::Always } else { WaitForRoom::No }
    }

    fn name() -> &'static str {
        "of updates"
    }
}
