//! Whether the running code may block, and whose code it is (thesis 2.3.4, "delegated context").
//!
//! Closures run on the trustee's own stack. If one waited, the thread would serve no requests, and
//! perhaps not even take the reply that the closure waits for. So waiting there is an error, and
//! the error names both places: where the closure was delegated and where it tried to wait.

use std::cell::Cell;
use std::fmt;
use std::panic::Location;

use transport_api::{HostId, ThreadId};

use crate::closure::registry::registry;
use crate::wire::words::RequestHead;

/// What kind of code runs on this thread right now.
#[derive(Clone, Copy)]
pub(crate) enum Context {
    /// A fiber, or the worker between fibers.
    Free,
    /// Requests of other threads; which closure, the cell says.
    Serving,
    /// A closure on a property of this thread, delegated from here.
    Inline(&'static Location<'static>),
    /// Callbacks of `apply_then` and its like; which one, the cell says.
    Callback,
    /// The drop of a property.
    Dropping,
}

/// The name of a callback in messages. A reference to it is kept and not the function, so that
/// noting a callback loads nothing.
pub(crate) type CallbackName = fn() -> &'static str;

fn unnamed() -> &'static str {
    "?"
}

/// The context of one thread.
pub(crate) struct ContextCell {
    context: Cell<Context>,
    /// The thread whose requests are served, or were last.
    client: Cell<ThreadId>,
    /// The request being served.
    request: Cell<RequestHead>,
    /// The name of the callback that runs.
    callback: Cell<&'static CallbackName>,
    /// The callback that panicked last, and where the call was made that it belongs to.
    panicked: Cell<Option<(&'static CallbackName, &'static Location<'static>)>>,
}

impl ContextCell {
    pub(crate) fn new() -> Self {
        Self {
            context: Cell::new(Context::Free),
            client: Cell::new(ThreadId { host: HostId(0), thread: 0 }),
            request: Cell::new(RequestHead::from_word(0)),
            callback: Cell::new(&(unnamed as CallbackName)),
            panicked: Cell::new(None),
        }
    }

    /// Whether code may wait here.
    #[inline(always)]
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.context.get(), Context::Free)
    }

    /// Enters `context` until the guard is dropped. Only from free context or inside a poll: then
    /// contexts end in the reverse order of their beginning, and while one lasts the cell says so.
    #[inline(always)]
    pub(crate) fn enter(&self, context: Context) -> Entered<'_> {
        Entered { cell: self, before: self.context.replace(context) }
    }

    /// As [`enter`](Self::enter), from free context only, of which nothing need be remembered: what
    /// is loaded here would be waited for until the store at the end of the context before.
    #[inline(always)]
    pub(crate) fn enter_from_free(&self, context: Context) -> EnteredFromFree<'_> {
        debug_assert!(self.is_free());
        self.context.set(context);
        EnteredFromFree(self)
    }

    /// As [`enter`](Self::enter), from any context. That may be one in which another fiber waits
    /// and which ends first, after which the cell may say that the context is free: the
    /// caller keeps the node by other means.
    pub(crate) fn enter_within(&self, context: Context) -> EnteredWithin<'_> {
        EnteredWithin { cell: self, before: self.context.replace(context) }
    }

    /// Runs `code` in free context: it is no delegated code, and may start some. Afterwards, also if
    /// `code` panics, the context is the one before, unless `code` has left one: that of a fiber that
    /// waits in delegated code.
    #[inline(always)]
    pub(crate) fn leave_for<R>(&self, code: impl FnOnce() -> R) -> R {
        let _left = Left { cell: self, before: self.context.replace(Context::Free) };
        code()
    }

    /// Whether requests of other threads are being served.
    #[inline(always)]
    pub(crate) fn is_serving(&self) -> bool {
        matches!(self.context.get(), Context::Serving)
    }

    /// Requests of this thread are served from now on.
    #[inline(always)]
    pub(crate) fn set_client(&self, client: ThreadId) {
        self.client.set(client);
    }

    /// The thread whose request is being served, if one is. No peer can claim to be another.
    pub(crate) fn client(&self) -> Option<ThreadId> {
        self.is_serving().then(|| self.client.get())
    }

    #[inline(always)]
    pub(crate) fn set_request(&self, head: RequestHead) {
        self.request.set(head);
    }

    /// The request being served, if one is.
    pub(crate) fn served(&self) -> Option<RequestHead> {
        matches!(self.context.get(), Context::Serving).then(|| self.request.get())
    }

    #[inline(always)]
    pub(crate) fn set_callback(&self, name: &'static CallbackName) {
        self.callback.set(name);
    }

    /// Notes where the call was made whose callback is panicking.
    #[cold]
    pub(crate) fn note_panic(&self, call: &'static Location<'static>) {
        self.panicked.set(Some((self.callback.get(), call)));
    }

    /// Whether the panic just caught is one of a callback, and where the call of that was made, if
    /// known.
    pub(crate) fn take_panicked(&self) -> (bool, Option<&'static Location<'static>>) {
        // An older note is of another callback, whose panic went to its caller.
        let noted = self.panicked.take();
        let noted = noted.filter(|(callback, _)| std::ptr::eq(*callback, self.callback.get()));
        let call = noted.map(|(_, call)| call);
        match self.context.get() {
            Context::Callback => (true, call),
            // Deferred work, whose context has ended.
            Context::Free => (call.is_some(), call),
            _ => (false, None),
        }
    }

    /// Where the running code comes from, for messages.
    pub(crate) fn origin(&self) -> Origin {
        Origin(self.context.get(), self.request.get().closure(), *self.callback.get())
    }

    /// Refuses to wait at `inner` when the running code must not.
    ///
    /// # Panics
    /// If it must not, at the caller's line, which should be `inner`. The panic ends the delegated closure
    /// and travels to its client.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_may_wait(&self, what: &str, inner: &'static Location<'static>) {
        if !self.is_free() {
            self.refuse_to_wait(what, inner);
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn refuse_to_wait(&self, what: &str, inner: &'static Location<'static>) -> ! {
        panic!("{}", self.refusal(what, inner));
    }

    /// Why the running code, which must not wait, is refused to at `inner`.
    pub(crate) fn refusal(&self, what: &str, inner: &'static Location<'static>) -> String {
        let (kind, place_to_wait) = match self.context.get() {
            Context::Callback => ("a callback", "start a fiber there with `spawn`, which may wait"),
            Context::Dropping => ("a drop", "start a fiber there with `spawn`, which may wait"),
            Context::Free | Context::Serving | Context::Inline(_) => (
                "a delegated closure",
                "make the property a `Latch` and delegate the closure with `launch`: then it may wait",
            ),
        };
        let instead = form_that_does_not_wait(what)
            .map_or_else(String::new, |then| format!("use `{then}` there, or "));
        format!(
            "{what} at {inner} would wait inside {}; {kind} must not wait: {instead}{place_to_wait}",
            self.origin()
        )
    }
}

/// The `_then` form of the call `what`, in back quotes, if it has one: waits for other things than a
/// delegated call (`sleep`, `join`, a channel) have none.
fn form_that_does_not_wait(what: &str) -> Option<String> {
    let call = what.strip_prefix('`')?.strip_suffix('`')?;
    let call = call.strip_suffix("_timeout").unwrap_or(call);
    const CALLS: [&str; 9] = [
        "apply",
        "apply_with",
        "apply_ref",
        "launch",
        "launch_with",
        "visit",
        "visit_with",
        "entrust",
        "entrust_with",
    ];
    let plain = call.strip_prefix("try_").unwrap_or(call);
    CALLS.contains(&plain).then(|| format!("{call}_then"))
}

/// Ends a context when it is dropped.
pub(crate) struct Entered<'a> {
    cell: &'a ContextCell,
    before: Context,
}

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.cell.context.set(self.before);
    }
}

/// Ends a context that was entered from free context.
pub(crate) struct EnteredFromFree<'a>(&'a ContextCell);

impl Drop for EnteredFromFree<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.context.set(Context::Free);
    }
}

/// Ends a context that was entered from any other.
pub(crate) struct EnteredWithin<'a> {
    cell: &'a ContextCell,
    before: Context,
}

impl Drop for EnteredWithin<'_> {
    fn drop(&mut self) {
        // Where the context is free, that before has ended meanwhile and must not come back.
        if !self.cell.is_free() {
            self.cell.context.set(self.before);
        }
    }
}

/// Resumes the context that [`leave_for`](ContextCell::leave_for) has left.
struct Left<'a> {
    cell: &'a ContextCell,
    before: Context,
}

impl Drop for Left<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.cell.is_free() {
            self.cell.context.set(self.before);
        }
    }
}

pub(crate) struct Origin(Context, u32, CallbackName);

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Context::Free => f.write_str("a fiber"),
            Context::Serving => {
                let name = registry().description(self.1).map_or("?", |found| found.closure_name);
                write!(f, "the delegated closure {name}")
            }
            Context::Inline(place) => write!(f, "the closure delegated at {place}"),
            Context::Callback => write!(f, "the callback {}", self.2()),
            Context::Dropping => f.write_str("the drop of a property"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::{Context, ContextCell, form_that_does_not_wait};

    #[test]
    fn a_context_that_is_left_is_resumed_after_a_panic_as_well() {
        let cell = ContextCell::new();
        let _serving = cell.enter(Context::Serving);
        let panics = || cell.leave_for(|| panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(cell.is_serving());
        cell.leave_for(|| std::mem::forget(cell.enter(Context::Callback)));
        assert!(!cell.is_free() && !cell.is_serving(), "that of a fiber that waits stays");
    }

    #[test]
    fn only_delegated_calls_have_a_form_that_does_not_wait() {
        let form = |what| form_that_does_not_wait(what).unwrap_or_default();
        assert_eq!(form("`apply`"), "apply_then");
        assert_eq!(form("`apply_with_timeout`"), "apply_with_then");
        assert_eq!(form("`try_visit_with`"), "try_visit_with_then");
        for other in ["`Sender::send`", "`sleep`", "`join`", "`select!`", "`visit_node`", "a wait"]
        {
            assert_eq!(form(other), "", "{other}");
        }
    }
}
