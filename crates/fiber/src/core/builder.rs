//! [`Builder`]: the name and the stack of a fiber that is to be started.

use std::borrow::Cow;

/// Describes a fiber to be: its name and its stack.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder starts nothing until it is given a closure"]
pub struct Builder {
    pub(crate) name: Option<Cow<'static, str>>,
    pub(crate) stack_bytes: Option<usize>,
    pub(crate) code: Option<&'static str>,
}

impl Builder {
    /// A fiber named "fiber N" with a stack of the scheduler's standard size.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names the fiber, for messages.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Builder {
        self.name = Some(name.into());
        self
    }

    /// Names the code that the fiber runs, for the message about an overflow of its stack. If this is
    /// not called, it is the type name of the fiber's closure.
    pub fn code(mut self, code: &'static str) -> Builder {
        self.code = Some(code);
        self
    }

    /// Asks for a stack of at least this many usable bytes; it is raised to
    /// [`MIN_STACK_BYTES`](crate::MIN_STACK_BYTES). Stacks of other than the scheduler's standard
    /// size are not pooled: mapping one costs about 10 microseconds.
    pub fn stack_bytes(mut self, bytes: usize) -> Builder {
        self.stack_bytes = Some(bytes);
        self
    }
}
