//! Loading rieds into the processes of a rack.
//!
//! A ried goes as a delegated request to a thread of its host, the digest first: a process that has
//! mapped the library needs its bytes no more. Bytes are an ordinary argument, which travels by the
//! path of large ones.

use jam_abi::RiedElement;
use jam_format::{Digest, Machine};
use serde::{Deserialize, Serialize};
use trust_core::{DelegateError, Node, Trustee};

use crate::package::element_bytes;
use crate::plain_bytes::Payload;
use crate::receiver::receiver;
use crate::ried::error::{RiedError, RiedRefusal};
use crate::ried::{ArrivedRied, LoadedBy, NotLoaded};
use crate::sender::Code;

/// The library of a ried: a ried of the program's packages, such as `jams::bisect::BISECT`, or the
/// [`Code`] of another one ([`Package::ried`](crate::Package::ried)).
pub trait RiedSource {
    /// Its library, for the machine of this rack.
    ///
    /// # Errors
    /// There is none for this machine.
    fn library(&self) -> Result<Code, RiedError>;
}

impl RiedSource for Code {
    fn library(&self) -> Result<Code, RiedError> {
        Ok(self.clone())
    }
}

impl RiedSource for RiedElement {
    fn library(&self) -> Result<Code, RiedError> {
        let machine = Machine::CURRENT.map_or(std::env::consts::ARCH, Machine::name);
        let missing = || RiedError::NoCode { ried: self.name.to_owned(), machine };
        Ok(Code::new(self.name, element_bytes(self.package, self.id).ok_or_else(missing)?))
    }
}

/// A ried that was loaded into the process of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRied {
    name: String,
    trustee: Trustee,
    layer: u64,
    digest: [u8; 16],
}

/// Loads a ried into the process of this thread, and waits until it has started. From then on, its
/// functions override all others of the same names for jams that run there.
///
/// A process maps a library once. If it has mapped this one before, the library does not start again,
/// but its functions override the others again.
///
/// ```no_run
/// # fn example(host: trust_core::Trustee, prices: &jam::Code) -> Result<(), jam::RiedError> {
/// let prices = jam::load_ried(host, prices)?;
/// // Jams that are sent there call the functions of `prices`.
/// prices.unload()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`RiedError`]: the receiver refused it, or the request failed as any delegated one can.
///
/// # Panics
/// In delegated context, where waiting is not allowed; outside a thread of a rack.
#[track_caller]
pub fn load_ried(
    host: impl Into<Trustee>,
    ried: &(impl RiedSource + ?Sized),
) -> Result<RemoteRied, RiedError> {
    let trustee = host.into();
    let code = ried.library()?;
    let name = code.name().to_owned();
    let own = trust_core::local_trustee().trustee().thread().host.0;
    let digest = *code.digest().as_bytes();
    let mut bytes = None;
    loop {
        let has_bytes = bytes.is_some();
        let proof = Payload::of_bytes(code.proof());
        let shipped = ((own, name.clone()), digest, proof, bytes.take());
        let answer = trustee.try_visit_node(|_: &Node, shipped: Shipped| serve(&shipped), shipped);
        match answer.map_err(|source| undelivered(&name, source))? {
            Ok(layer) => return Ok(RemoteRied { name, trustee, layer, digest }),
            Err(None) if !has_bytes => bytes = Some(Payload::of_bytes(code.bytes())),
            Err(refusal) => {
                let reason = || "its receiver wants the bytes that it got".to_owned();
                let source = refusal.unwrap_or_else(|| RiedRefusal::Library { reason: reason() });
                return Err(RiedError::Refused { ried: name, source });
            }
        }
    }
}

/// The number of the sending host and the ried's name there, the digest, the proof that a signer answers for it (empty if there
/// is none), and the bytes if the receiver wants them.
type Shipped = ((u32, String), [u8; 16], Payload, Option<Payload>);

/// At the receiver; `Err(None)` if it needs the bytes.
fn serve(shipped: &Shipped) -> Result<u64, Option<RiedRefusal>> {
    let ((sender, name), digest, proof, bytes) = shipped;
    let (claimed, by) = (Digest::from_bytes(*digest), LoadedBy::Peer(*sender));
    let (bytes, proof) = (bytes.as_ref().map(Payload::bytes), proof.bytes());
    let loaded = receiver().load_arrived(ArrivedRied { name, claimed, bytes, proof, by });
    loaded.map_err(|error| match error {
        NotLoaded::NeedBytes => None,
        NotLoaded::Refused(refusal) => Some(refusal),
    })
}

fn undelivered(name: &str, source: DelegateError) -> RiedError {
    RiedError::Delegate { ried: name.to_owned(), source }
}

impl RemoteRied {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes the functions that this call of [`load_ried`] added: later calls use those that it
    /// overrode. The library stays mapped. Returns false if they were removed before, by this or by a
    /// policy.
    ///
    /// Any host can do this that may load the ried: the request names the ried, and the policy of its
    /// receiver must admit it.
    ///
    /// # Errors
    /// The receiver does not admit the ried (and so has unloaded it), or the request failed as any
    /// delegated one can.
    ///
    /// # Panics
    /// As [`load_ried`].
    #[track_caller]
    pub fn unload(&self) -> Result<bool, RiedError> {
        let unload = |_: &Node, (sender, layer, digest): (u32, u64, [u8; 16])| {
            receiver().unload_for_peer(sender, layer, &Digest::from_bytes(digest))
        };
        let own = trust_core::local_trustee().trustee().thread().host.0;
        let answer = self.trustee.try_visit_node(unload, (own, self.layer, self.digest));
        match answer.map_err(|source| undelivered(&self.name, source))? {
            Ok(found) => Ok(found),
            Err(refusal) => {
                Err(RiedError::Refused { ried: self.name.clone(), source: refusal.into() })
            }
        }
    }
}
