//! The name of a blob: a digest of its bytes.

use std::fmt;

/// The first 16 bytes of a blob's BLAKE3 hash, by which sender and receiver name it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; Self::BYTES]);

impl Digest {
    /// The length of a digest, in bytes.
    pub const BYTES: usize = 16;

    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let hash = blake3::hash(bytes);
        let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
        Self(*first)
    }

    /// A digest that someone claims.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

/// As 32 hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_prefix_of_the_hash() {
        // The test vector of BLAKE3 for no input.
        assert_eq!(Digest::of(b"").to_string(), "af1349b9f5f9a1a6a0404dea36dcc949");
        assert_eq!(format!("{:?}", Digest::of(b"")), "Digest(af1349b9f5f9a1a6a0404dea36dcc949)");
        assert_ne!(Digest::of(b"a"), Digest::of(b"b"));
        let digest = Digest::of(b"a");
        assert_eq!(Digest::from_bytes(*digest.as_bytes()), digest);
    }
}
