//! What can go wrong with a ried: at its receiver ([`RiedRefusal`]), and for its caller
//! ([`RiedError`]).

use serde::{Deserialize, Serialize};
use thiserror::Error;
use trust_core::DelegateError;

use crate::error::{Panicked, Refusal};

/// Why a ried is not loaded, or not unloaded.
#[derive(Debug, Clone, Error)]
pub enum RiedError {
    /// The receiver refused it.
    #[error("ried {ried} was refused by its receiver")]
    Refused {
        /// The ried's name.
        ried: String,
        /// Why.
        source: RiedRefusal,
    },
    /// The request did not reach the host, or its answer did not come back.
    #[error("ried {ried} could not be delivered")]
    Delegate {
        /// The ried's name.
        ried: String,
        /// Why.
        source: DelegateError,
    },
    /// The sender has no library that the rack's processors run.
    #[error("ried {ried} has no library for {machine}: build its package for that machine")]
    NoCode {
        /// The ried's name.
        ried: String,
        /// The machine of this process, as every host of the rack has it.
        machine: &'static str,
    },
}

/// Why a receiver does not load a ried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum RiedRefusal {
    /// A reason for which a jam is refused as well.
    #[error(transparent)]
    Code(#[from] Refusal),
    /// Its bytes are not a shared library.
    #[error("its bytes are malformed: {reason}")]
    Malformed {
        /// What is wrong, as the parser says it.
        reason: String,
    },
    /// The system's loader rejects it.
    #[error("its library cannot be loaded: {reason}")]
    Library {
        /// What the loader says.
        reason: String,
    },
    /// It was built with another release.
    #[error(
        "its interface has version {found}, expected 1 to {expected}: build it with this release"
    )]
    Version {
        /// Its version.
        found: u32,
        /// That of the receiver.
        expected: u32,
    },
    /// Its start function returned an error.
    #[error("it did not start")]
    Start {
        /// The error.
        source: Panicked,
    },
}
