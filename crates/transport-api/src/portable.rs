//! How errors travel: their parts that serde does not know, as modules for `#[serde(with = "..")]`.
//!
//! Errors are results like any other: a delegated closure may return them. They are encoded with
//! everything that their messages say.

/// An [`io::Error`](std::io::Error): its code if the system returned it, else its text. An error that
/// has a text arrives with the kind [`Other`](std::io::ErrorKind::Other).
pub mod io_error {
    use std::io;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    enum Encoded {
        System(i32),
        Text(String),
    }

    /// Encodes the error.
    ///
    /// # Errors
    /// Those of `serializer`.
    pub fn serialize<S: Serializer>(error: &io::Error, serializer: S) -> Result<S::Ok, S::Error> {
        let text = || Encoded::Text(error.to_string());
        error.raw_os_error().map_or_else(text, Encoded::System).serialize(serializer)
    }

    /// Decodes it.
    ///
    /// # Errors
    /// Those of `deserializer`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<io::Error, D::Error> {
        Ok(match Encoded::deserialize(deserializer)? {
            Encoded::System(code) => io::Error::from_raw_os_error(code),
            Encoded::Text(text) => io::Error::other(text),
        })
    }
}

/// An [`Arc`](std::sync::Arc), by its value.
pub mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Encodes the value.
    ///
    /// # Errors
    /// Those of `serializer`.
    pub fn serialize<T: Serialize, S: Serializer>(
        value: &Arc<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        T::serialize(value, serializer)
    }

    /// Decodes it.
    ///
    /// # Errors
    /// Those of `deserializer`.
    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}

/// An [`Arc`](std::sync::Arc) of an [`io::Error`](std::io::Error).
pub mod shared_io_error {
    use std::io;
    use std::sync::Arc;

    use serde::{Deserializer, Serializer};

    /// As that of [`io_error`](super::io_error).
    ///
    /// # Errors
    /// Those of `serializer`.
    pub fn serialize<S: Serializer>(
        error: &Arc<io::Error>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        super::io_error::serialize(error, serializer)
    }

    /// As that of [`io_error`](super::io_error).
    ///
    /// # Errors
    /// Those of `deserializer`.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<io::Error>, D::Error> {
        super::io_error::deserialize(deserializer).map(Arc::new)
    }
}
