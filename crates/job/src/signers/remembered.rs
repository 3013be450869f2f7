//! [`Remembered`]: an algorithm that verifies each signature once.
//!
//! It takes the place of an algorithm of `rustls-webpki`, which hence checks everything else of a
//! certificate each time: a signature by a key of a message stays good, a certificate does not.

use std::collections::HashSet;

use parking_lot::Mutex;
use rustls::pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm};

/// Good signatures that are remembered, at most. Only the authority, and its signers, can make more, so
/// it does not matter that all are forgotten then.
const MAX_GOOD: usize = 256;

/// A signature algorithm, and the good signatures that it has seen.
#[derive(Debug)]
pub(super) struct Remembered {
    algorithm: &'static dyn SignatureVerificationAlgorithm,
    /// Hashes of key, message and signature.
    good: Mutex<HashSet<[u8; 32]>>,
}

impl Remembered {
    pub(super) fn new(algorithm: &'static dyn SignatureVerificationAlgorithm) -> Self {
        Self { algorithm, good: Mutex::default() }
    }

    #[cfg(test)]
    pub(super) fn forget(&self) {
        self.good.lock().clear();
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.good.lock().len()
    }
}

impl SignatureVerificationAlgorithm for Remembered {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let mut hasher = blake3::Hasher::new();
        for part in [public_key, signature, message] {
            hasher.update(&part.len().to_le_bytes()).update(part);
        }
        let hash = *hasher.finalize().as_bytes();
        if self.good.lock().contains(&hash) {
            return Ok(());
        }
        self.algorithm.verify_signature(public_key, message, signature)?;
        let mut good = self.good.lock();
        if good.len() >= MAX_GOOD {
            good.clear();
        }
        good.insert(hash);
        Ok(())
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }
}
