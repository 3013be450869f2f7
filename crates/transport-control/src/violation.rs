//! [`Violation`]: what a peer sent that the protocol does not allow.

use thiserror::Error;

/// What a peer sent that no peer of this build sends, in words. Text of the peer in it is escaped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Violation(String);

impl Violation {
    /// What was sent.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}
