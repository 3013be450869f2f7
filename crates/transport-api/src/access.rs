//! [`Rights`]: what a host may do to a region; [`Access`]: what each host may do to it.
//!
//! As the protection of Thekkath, Levy and Lazowska 1994, section 3: the owner of a segment grants
//! rights to each importer, and what carries the operation out checks them, not the importer.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::BitOr;

use serde::{Deserialize, Serialize};

use crate::HostId;

/// What a host may do to a region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Rights(u8);

impl Rights {
    /// Nothing.
    pub const NONE: Rights = Rights(0);
    /// The host may read.
    pub const READ: Rights = Rights(1);
    /// The host may write and signal.
    pub const WRITE: Rights = Rights(2);
    /// The host may compare-and-swap and fetch-and-add.
    pub const ATOMIC: Rights = Rights(4);
    /// Everything.
    pub const ALL: Rights = Rights(7);

    /// Whether all of `needed` is allowed.
    #[inline]
    pub fn allow(self, needed: Rights) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// The rights as bits, for messages between processes.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Rights from bits, `None` if a bit is set that stands for no right.
    pub fn from_bits(bits: u8) -> Option<Rights> {
        (bits <= Rights::ALL.0).then_some(Rights(bits))
    }
}

impl From<Rights> for u8 {
    fn from(rights: Rights) -> u8 {
        rights.bits()
    }
}

impl TryFrom<u8> for Rights {
    type Error = String;

    fn try_from(bits: u8) -> Result<Rights, String> {
        let unknown = || format!("unknown rights {bits:#x}: expected at most {:#x}", Rights::ALL.0);
        Rights::from_bits(bits).ok_or_else(unknown)
    }
}

impl BitOr for Rights {
    type Output = Rights;
    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [(Rights::READ, "READ"), (Rights::WRITE, "WRITE"), (Rights::ATOMIC, "ATOMIC")];
        let names: Vec<_> = named.iter().filter(|(r, _)| self.allow(*r)).map(|(_, n)| *n).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(" | "))
    }
}

/// What each host may do to a region: rights for all hosts, and exceptions for named ones.
///
/// The owner's own imports are subject to it, too.
///
/// ```
/// use gossamer_transport_api::{Access, HostId, Rights};
///
/// // Every host may read, host 3 may also write, and host 4 may do nothing.
/// let access = Access::all(Rights::READ)
///     .with(HostId(3), Rights::READ | Rights::WRITE)
///     .with(HostId(4), Rights::NONE);
/// assert_eq!(access.of(HostId(7)), Rights::READ);
/// assert!(access.of(HostId(3)).allow(Rights::WRITE));
/// assert_eq!(access.of(HostId(4)), Rights::NONE);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    all: Rights,
    named: BTreeMap<HostId, Rights>,
}

impl Access {
    /// The same rights for every host.
    pub fn all(rights: Rights) -> Self {
        Self { all: rights, named: BTreeMap::new() }
    }

    /// No host but those that [`with`](Self::with) names.
    pub fn none() -> Self {
        Self::all(Rights::NONE)
    }

    /// Every host may read.
    ///
    /// ```
    /// use gossamer_transport_api::{Access, HostId, Rights};
    ///
    /// let access = Access::read().write_for([HostId(1), HostId(2)]).atomics_for([HostId(2)]);
    /// assert_eq!(access.of(HostId(0)), Rights::READ);
    /// assert_eq!(access.of(HostId(1)), Rights::READ | Rights::WRITE);
    /// assert_eq!(access.of(HostId(2)), Rights::ALL);
    /// ```
    pub fn read() -> Self {
        Self::all(Rights::READ)
    }

    /// Each of `hosts` may also write and signal.
    #[must_use]
    pub fn write_for(self, hosts: impl IntoIterator<Item = HostId>) -> Self {
        self.also(hosts, Rights::WRITE)
    }

    /// Each of `hosts` may also compare-and-swap and fetch-and-add.
    #[must_use]
    pub fn atomics_for(self, hosts: impl IntoIterator<Item = HostId>) -> Self {
        self.also(hosts, Rights::ATOMIC)
    }

    fn also(self, hosts: impl IntoIterator<Item = HostId>, rights: Rights) -> Self {
        hosts.into_iter().fold(self, |access, host| {
            let before = access.of(host);
            access.with(host, before | rights)
        })
    }

    /// With these rights for `host`, instead of those for all.
    #[must_use]
    pub fn with(mut self, host: HostId, rights: Rights) -> Self {
        self.named.insert(host, rights);
        self
    }

    /// Without what `rights` does not contain.
    ///
    /// ```
    /// use gossamer_transport_api::{Access, HostId, Rights};
    ///
    /// let access = Access::read().write_for([HostId(1)]).limited_to(Rights::READ);
    /// assert_eq!(access.of(HostId(1)), Rights::READ);
    /// ```
    #[must_use]
    pub fn limited_to(mut self, rights: Rights) -> Self {
        self.all = Rights(self.all.0 & rights.0);
        self.named.values_mut().for_each(|named| named.0 &= rights.0);
        self
    }

    /// The rights of `host`.
    #[inline]
    pub fn of(&self, host: HostId) -> Rights {
        self.named.get(&host).copied().unwrap_or(self.all)
    }

    /// For backends: every set of rights that some host may have, each once.
    pub fn classes(&self) -> Vec<Rights> {
        let mut classes: Vec<_> = self.named.values().copied().chain([self.all]).collect();
        classes.sort();
        classes.dedup();
        classes
    }

    /// For backends: whether some host has one of these rights.
    pub fn any_allow(&self, rights: Rights) -> bool {
        self.classes().iter().any(|class| class.0 & rights.0 != 0)
    }
}

/// The same rights for every host.
impl From<Rights> for Access {
    fn from(rights: Rights) -> Self {
        Self::all(rights)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_named_host_has_its_own_rights_and_no_others() {
        let access = Access::none().with(HostId(1), Rights::WRITE).with(HostId(2), Rights::READ);
        assert_eq!(access.of(HostId(0)), Rights::NONE);
        assert_eq!(access.of(HostId(1)), Rights::WRITE);
        assert_eq!(access.classes(), [Rights::NONE, Rights::READ, Rights::WRITE]);
        assert!(access.any_allow(Rights::READ | Rights::ATOMIC));
        assert!(!access.any_allow(Rights::ATOMIC));
        let last = access.with(HostId(1), Rights::READ);
        assert_eq!(last.of(HostId(1)), Rights::READ, "the last word counts");
        assert_eq!(Access::from(Rights::ALL), Access::all(Rights::ALL));
    }
}
