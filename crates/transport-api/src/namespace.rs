//! [`Namespace`]: which layer a region key or a bulk tag belongs to.
//!
//! Several layers use the same lanes: delegation, segments, applications. Each has a name space of
//! its own, in which it numbers its regions and the kinds of its bulk payloads as it likes. A
//! receiver tells by the name space which layer an arrival is for, and a tag that this layer does
//! not know is a violation of the protocol.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name space of one layer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(u8);

impl Namespace {
    /// Programs that use a transport by itself, as its tests do.
    pub const BARE: Namespace = Namespace(0);
    /// What transports say to each other over a transport that carries them.
    pub const TRANSPORT: Namespace = Namespace(255);
    /// Delegation.
    pub const DELEGATION: Namespace = Namespace(1);
    /// Named memory: segments and the registries of their names.
    pub const SEGMENTS: Namespace = Namespace(2);
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Namespace::BARE => f.write_str("bare"),
            Namespace::TRANSPORT => f.write_str("transport"),
            Namespace::DELEGATION => f.write_str("delegation"),
            Namespace::SEGMENTS => f.write_str("segments"),
            Namespace(other) => write!(f, "namespace {other}"),
        }
    }
}

/// Bits of a number within its name space.
const NUMBER_BITS: u32 = 56;

/// Defines a type of numbers in name spaces.
macro_rules! named {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(
            /// The name space in the uppermost byte, the number below. This is also how it travels.
            pub u64,
        );

        impl $name {
            /// The one with this number in `namespace`.
            ///
            /// # Panics
            /// If `number` has more than 56 bits.
            pub const fn new(namespace: Namespace, number: u64) -> Self {
                assert!(number >> NUMBER_BITS == 0, "a number in a name space has 56 bits");
                Self((namespace.0 as u64) << NUMBER_BITS | number)
            }

            /// The name space.
            #[inline]
            pub const fn namespace(self) -> Namespace {
                Namespace((self.0 >> NUMBER_BITS) as u8)
            }

            /// The number in the name space.
            #[inline]
            pub const fn number(self) -> u64 {
                self.0 & (u64::MAX >> (u64::BITS - NUMBER_BITS))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}/{:#x}", self.namespace(), self.number())
            }
        }
    };
}

named! {
    /// What a host exports a region under. Exporter and importer agree on it beforehand.
    ///
    /// ```
    /// use gossamer_transport_api::{Namespace, RegionKey};
    /// let key = RegionKey::new(Namespace::DELEGATION, 0x2a);
    /// assert_eq!((key.namespace(), key.number()), (Namespace::DELEGATION, 0x2a));
    /// assert_eq!(format!("{key:?}"), "delegation/0x2a");
    /// ```
    RegionKey
}

named! {
    /// What a bulk payload is, for the layer that its name space belongs to.
    Tag
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_layer_has_a_name_space_of_its_own() {
        let spaces = [
            (Namespace::BARE, 0, "bare"),
            (Namespace::DELEGATION, 1, "delegation"),
            (Namespace::SEGMENTS, 2, "segments"),
            (Namespace::TRANSPORT, 255, "transport"),
        ];
        for (space, byte, name) in spaces {
            let key = RegionKey::new(space, 5);
            assert_eq!((key.namespace(), key.0 >> NUMBER_BITS), (space, byte));
            assert_eq!(format!("{key:?}"), format!("{name}/0x5"));
        }
    }
}
