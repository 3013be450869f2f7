//! [`Next`]: a notification as a future, for tokio or any other async runtime.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::SegmentError;
use crate::notification::queue::Waiter;
use crate::notification::{Notification, Notifications};

/// The next notification of a segment: [`Notifications::next`]. It needs no particular runtime.
///
/// It is cancel safe: a notification is taken by the poll that returns it, so dropping this before
/// loses none.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Next {
    notifications: Notifications,
    waiter: Waiter,
}

impl Next {
    pub(super) fn new(notifications: Notifications) -> Self {
        let waiter = Waiter::new(&notifications.queue);
        Self { notifications, waiter }
    }
}

impl Future for Next {
    type Output = Result<Notification, SegmentError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { notifications, waiter } = self.get_mut();
        notifications.check_notified()?;
        let taken = waiter.take_or_wait(context.waker());
        match notifications.result(taken) {
            Ok(Some(notification)) => Poll::Ready(Ok(notification)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("of", &self.notifications).finish_non_exhaustive()
    }
}
