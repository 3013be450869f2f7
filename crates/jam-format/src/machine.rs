//! The processors that a blob can be for, and the features of them that it may require.
//!
//! A feature is a bit: its position in the machine's list below. A blob without any runs on every
//! processor of its machine. New features go to the end of a list, since blobs are stored.

use std::fmt;

use thiserror::Error;

/// A processor architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Machine {
    /// 64-bit x86.
    X86_64 = 1,
    /// 64-bit ARM, little-endian.
    Aarch64 = 2,
}

const X86_64_FEATURES: &[&str] = &[
    "sse3",
    "ssse3",
    "sse4.1",
    "sse4.2",
    "popcnt",
    "cmpxchg16b",
    "lzcnt",
    "movbe",
    "bmi1",
    "bmi2",
    "f16c",
    "fma",
    "avx",
    "avx2",
    "aes",
    "pclmulqdq",
    "sha",
    "avx512f",
    "avx512bw",
    "avx512cd",
    "avx512dq",
    "avx512vl",
    "avx512vnni",
    "avx512bf16",
    "gfni",
    "vaes",
    "vpclmulqdq",
];

const AARCH64_FEATURES: &[&str] = &[
    "crc", "lse", "rdm", "fp16", "dotprod", "aes", "sha2", "sha3", "rcpc", "rcpc2", "bf16", "i8mm",
    "sve", "sve2", "lse2",
];

impl Machine {
    /// Every machine.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The machine that this code is compiled for, if blobs exist for it.
    pub const CURRENT: Option<Self> = if cfg!(target_arch = "x86_64") {
        Some(Self::X86_64)
    } else if cfg!(all(target_arch = "aarch64", target_endian = "little")) {
        Some(Self::Aarch64)
    } else {
        None
    };

    /// Its name, as rustc's `target_arch` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The machine whose blobs have this number.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|machine| *machine as u8 == number)
    }

    /// The names of its optional features, as rustc's `target_feature` has them. Bit `i` of
    /// [`Features`] is the `i`th.
    pub const fn features(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => X86_64_FEATURES,
            Self::Aarch64 => AARCH64_FEATURES,
        }
    }
}

/// As rustc names it.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of optional features of one machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(u64);

impl Features {
    /// None of them: every processor of the machine will do.
    pub const NONE: Self = Self(0);

    /// The set with these bits, of which some may have no name.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The set of the features of `machine` with these names.
    ///
    /// # Errors
    /// [`UnknownFeature`], for a name that is not in [`Machine::features`].
    pub fn from_names<'n>(
        machine: Machine,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<Self, UnknownFeature> {
        names.into_iter().try_fold(Self::NONE, |set, name| {
            let bit = machine.features().iter().position(|known| *known == name);
            let bit = bit.ok_or_else(|| UnknownFeature { machine, name: name.to_owned() })?;
            Ok(Self(set.0 | 1 << bit))
        })
    }

    /// What is in this set and not in `available`.
    pub const fn missing_from(self, available: Self) -> Self {
        Self(self.0 & !available.0)
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The names of those in it that `machine` has.
    pub fn names(self, machine: Machine) -> impl Iterator<Item = &'static str> {
        let bits = self.0;
        let known = machine.features().iter().enumerate();
        known.filter(move |(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| *name)
    }

    /// Whether it has only features that `machine` has a name for.
    pub(crate) fn are_of(self, machine: Machine) -> bool {
        self.0 >> machine.features().len() == 0
    }
}

/// A processor feature that blobs cannot require.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown processor feature {name:?} of {machine}: expected one of {}", machine.features().join(", "))]
pub struct UnknownFeature {
    /// The machine that was asked for it.
    pub machine: Machine,
    /// The name that it does not have.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_names_and_bits() {
        let set = Features::from_names(Machine::X86_64, ["avx2", "sse3"]).unwrap();
        assert_eq!(set.names(Machine::X86_64).collect::<Vec<_>>(), ["sse3", "avx2"]);
        assert_eq!(set.bits(), 1 | 1 << 13);
        let only_sse3 = Features::from_bits(1);
        assert_eq!(set.missing_from(only_sse3).bits(), 1 << 13);
        assert!(set.missing_from(set).is_empty());
        let error = Features::from_names(Machine::Aarch64, ["avx2"]).unwrap_err();
        let message = "unknown processor feature \"avx2\" of aarch64: expected one of crc, lse, ";
        assert!(error.to_string().starts_with(message), "{error}");
    }

    #[test]
    fn machines_have_numbers() {
        for machine in Machine::ALL {
            assert_eq!(Machine::from_number(machine as u8), Some(machine));
            assert!(machine.features().len() < 64);
            let mut names = machine.features().to_vec();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), machine.features().len(), "a feature is listed twice");
        }
        assert_eq!(Machine::from_number(0), None);
        assert_eq!(Machine::from_number(3), None);
    }
}
