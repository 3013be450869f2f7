//! [`Remote`]: starting fibers on another thread's scheduler.

use std::any::type_name;
use std::fmt;
use std::sync::Arc;

use crate::core::builder::Builder;
use crate::core::inbox::{Job, Message, Shared};
use crate::core::run_to_end;
use crate::join::{JoinHandle, Promise};

/// A scheduler as other threads see it: a place to start fibers on. Cheap to clone.
#[derive(Clone)]
pub struct Remote {
    pub(crate) shared: Arc<Shared>,
}

impl Remote {
    /// Starts a fiber on that thread, with a default name and stack.
    ///
    /// When the fiber cannot be started, [`JoinHandle::join`] says why.
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.spawn_with(Builder::new(), f)
    }

    /// Starts a fiber on that thread, as `builder` describes it.
    ///
    /// When the fiber cannot be started, [`JoinHandle::join`] says why.
    pub fn spawn_with<F, T>(&self, mut builder: Builder, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        builder.code.get_or_insert(type_name::<F>());
        let (promise, handle) = Promise::at(self.shared.scheduler);
        let job: Job = Box::new(move |start| match start {
            Ok(()) => promise.settle(run_to_end(f)),
            Err(error) => promise.settle(Err(error.into())),
        });
        self.shared.send(Message::Spawn { builder, job });
        handle
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote(scheduler {})", self.shared.scheduler)
    }
}
