//! [`Value`]: an argument of delegated calls that is encoded as one byte string.

use serde::{Deserialize, Serialize};

/// A value, encoded as one byte string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value(#[serde(with = "serde_bytes")] pub Vec<u8>);
