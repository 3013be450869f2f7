//! [`with_causes`]: an error in one line, for people, logs and other hosts.
//!
//! An error prints only its own level; its cause is reached through `source()`.

use std::error::Error;
use std::fmt::{self, Display};

/// Prints `error` and its causes, separated by colons.
pub(crate) fn with_causes<E: Error + 'static>(error: &E) -> WithCauses<'_> {
    WithCauses(error)
}

/// What [`with_causes`] returns.
pub(crate) struct WithCauses<'a>(&'a (dyn Error + 'static));

impl Display for WithCauses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    #[error("cannot start")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn causes_follow_their_error() {
        let error = Outer(std::io::Error::other("no memory"));
        assert_eq!(with_causes(&error).to_string(), "cannot start: no memory");
    }
}
