//! [`Builder`]: what an executor gets.

use std::time::Duration;

use crate::error::ExecutorError;
use crate::executor::{Executor, Log};
use crate::layout::{MAX_PAYLOAD, MAX_SCRATCH, MAX_STACK, Sizes, UNIT, call};

/// Settings of an executor. Sizes are rounded up to 64 KiB.
pub struct Builder {
    deadline: Duration,
    memory: usize,
    payload: usize,
    stack: usize,
    scratch: usize,
    log: Option<Box<Log>>,
}

impl Executor {
    /// What an executor gets, to be set before it starts.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(1),
            memory: 64 << 20,
            payload: 1 << 20,
            stack: 256 << 10,
            scratch: 0,
            log: None,
        }
    }
}

impl Builder {
    /// How long a call may run; one second if this is not called. [`Duration::MAX`] is no limit.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The most memory that the process may have, in bytes, with all of its parts: payload, stack,
    /// scratch and 2.3 MiB; 64 MiB if this is not called. All of it is mapped at the start, and a
    /// jam cannot get more.
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self
    }

    /// The longest payload in bytes; 1 MiB if this is not called.
    pub fn payload(mut self, bytes: usize) -> Self {
        self.payload = bytes;
        self
    }

    /// The stack of a jam in bytes; 256 KiB if this is not called.
    pub fn stack(mut self, bytes: usize) -> Self {
        self.stack = bytes;
        self
    }

    /// The scratch segment in bytes; none if this is not called.
    pub fn scratch(mut self, bytes: usize) -> Self {
        self.scratch = bytes;
        self
    }

    /// Calls `log` with the lines that jams log, up to 3 KiB per call, after each call and on its thread.
    pub fn log(mut self, log: impl FnMut(&str) + Send + 'static) -> Self {
        self.log = Some(Box::new(log));
        self
    }

    /// Starts the process.
    ///
    /// # Errors
    /// [`ExecutorError::Size`], if a part is too large or all parts need more than the limit of
    /// memory; [`ExecutorError::Start`], if the system does not start the process, or lacks what
    /// isolates it.
    pub fn start(self) -> Result<Executor, ExecutorError> {
        let size = |what, bytes: usize, least: usize, limit| {
            let rounded = bytes.max(least).checked_next_multiple_of(UNIT);
            let fits = rounded.filter(|rounded| *rounded <= limit);
            fits.ok_or(ExecutorError::Size { what, bytes, limit })
        };
        // Arguments and payload share the part after the first unit with nothing else.
        let payload = self.payload.saturating_add(call::PAYLOAD);
        let sizes = Sizes {
            payload: size("payload", payload, 0, MAX_PAYLOAD)?,
            stack: size("stack", self.stack, UNIT, MAX_STACK)?,
            scratch: size("scratch", self.scratch, 0, MAX_SCRATCH)?,
        };
        if sizes.total() > self.memory {
            let (bytes, limit) = (sizes.total(), self.memory);
            return Err(ExecutorError::Size { what: "executor", bytes, limit });
        }
        Executor::start(sizes, self.deadline, self.log)
    }
}
