//! Signatures of packages: the block after the content of a signed package, and the [`Proof`] that
//! travels with one jam of it.
//!
//! ```text
//!  0 version u8 (1)   1 algorithm u8   2 signature length u16   4 certificate length u32
//!  8 job u128 (0: every job of the rack)
//! 24 the signer's certificate, X.509 in DER; the signature
//! ```
//!
//! The rack's authority signs members directly, so one certificate is the whole chain. What is signed
//! is the [`Table::hash`] of the package, with the job and a prefix that no other use of the key has.
//! This crate only says what the bytes are; whether the signature is good, and whose it is, says the
//! crate `gossamer-job`.

use crate::{Digest, MAX_BLOB_BYTES, Machine, Package, PackageError, Parsed, Table};

/// The length of the longest [`Proof`] that a receiver looks at, in bytes: of about a thousand
/// elements. Packages with more cannot be signed.
pub const MAX_PROOF_BYTES: usize = 64 << 10;
/// The length of a blob and the proof after it, in bytes, at most.
pub const MAX_PROVEN_BYTES: usize = MAX_BLOB_BYTES + MAX_PROOF_BYTES;

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 24;
const MAX_CERTIFICATE_BYTES: usize = 8 << 10;
const MAX_SIGNATURE_BYTES: usize = 128;
const PREFIX: &[u8; 24] = b"gossamer jam package 1\0\0";
/// The length of what is signed, in bytes.
const MESSAGE_BYTES: usize = PREFIX.len() + 16 + 32;

/// How a package is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Algorithm {
    /// ECDSA on the curve P-256 with SHA-256, the signature in DER.
    EcdsaP256 = 1,
    /// Ed25519.
    Ed25519 = 2,
}

/// A signature block, not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature<'a> {
    /// How it is signed.
    pub algorithm: Algorithm,
    /// The one job in which the package may run; `None` for every job of the rack.
    pub job: Option<u128>,
    /// The signer's certificate, X.509 in DER.
    pub certificate: &'a [u8],
    /// The signature of [`signed_message`](Package::signed_message).
    pub signature: &'a [u8],
}

impl<'a> Signature<'a> {
    /// The signature block in `bytes`.
    ///
    /// # Errors
    /// [`PackageError::Signature`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PackageError> {
        let wrong = |expected| PackageError::Signature { expected };
        let (header, rest) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or_else(|| wrong("at least 24 bytes of header"))?;
        if header[0] != VERSION {
            return Err(wrong("version 1"));
        }
        let algorithm = match header[1] {
            1 => Algorithm::EcdsaP256,
            2 => Algorithm::Ed25519,
            _ => return Err(wrong("algorithm 1 (ECDSA P-256) or 2 (Ed25519)")),
        };
        let signature = usize::from(u16::from_le_bytes([header[2], header[3]]));
        let certificate = [header[4], header[5], header[6], header[7]];
        let certificate = u32::from_le_bytes(certificate) as usize;
        if !(1..=MAX_CERTIFICATE_BYTES).contains(&certificate)
            || !(1..=MAX_SIGNATURE_BYTES).contains(&signature)
        {
            return Err(wrong("a certificate of at most 8192 bytes, a signature of at most 128"));
        }
        if rest.len() != certificate + signature {
            return Err(wrong("certificate and signature, and nothing else"));
        }
        let job: [u8; 16] = header[8..].try_into().expect("the header has 24 bytes");
        let job = Some(u128::from_le_bytes(job)).filter(|job| *job != 0);
        let (certificate, signature) = rest.split_at(certificate);
        Ok(Self { algorithm, job, certificate, signature })
    }

    /// Its bytes, to [sign](crate::sign_package) a package with.
    ///
    /// # Errors
    /// [`PackageError::Signature`], if certificate or signature are too long.
    pub fn encode(&self) -> Result<Vec<u8>, PackageError> {
        let Self { algorithm, job, certificate, signature } = self;
        let mut bytes = vec![VERSION, *algorithm as u8];
        bytes.extend_from_slice(&(signature.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(certificate.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&job.unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(certificate);
        bytes.extend_from_slice(signature);
        Signature::parse(&bytes)?;
        Ok(bytes)
    }
}

/// The table and the signature block of a signed package: they prove of a digest that the signer of
/// the package answers for the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof<'a> {
    table: Table<'a>,
    signature: Signature<'a>,
}

impl<'a> Proof<'a> {
    /// The proof in `bytes`, which only this process may be able to change. The signature is not
    /// verified.
    ///
    /// # Errors
    /// [`PackageError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PackageError> {
        if bytes.len() > MAX_PROOF_BYTES {
            return Err(PackageError::Signature { expected: "a table of at most 65536 bytes" });
        }
        let table = Table::parse(bytes)?;
        let block = &bytes[table.bytes().len()..];
        if block.len() != table.block {
            let expected = table.bytes().len() + table.block;
            return Err(PackageError::Length { len: bytes.len(), expected });
        }
        Ok(Self { table, signature: Signature::parse(block)? })
    }

    /// What the package consists of.
    pub const fn table(&self) -> &Table<'a> {
        &self.table
    }

    /// Who signed it, as it claims.
    pub const fn signature(&self) -> &Signature<'a> {
        &self.signature
    }

    /// What the signature must be of.
    pub fn signed_message(&self) -> Vec<u8> {
        message(&self.table, self.signature.job)
    }

    /// Whether the element with this digest is one of the package.
    pub fn covers(&self, digest: &Digest) -> bool {
        self.machines_of(digest).next().is_some()
    }

    /// The machines that the element with this digest is for; none if the package does not have it.
    pub fn machines_of(&self, digest: &Digest) -> impl Iterator<Item = Machine> {
        let entries = self.table.entries().iter().filter(|entry| entry.digest == *digest);
        entries.map(|entry| entry.machine)
    }
}

impl Package<'_> {
    /// What a signer signs, for one job or for every job of the rack.
    pub fn signed_message(&self, job: Option<u128>) -> Vec<u8> {
        message(self.table(), job)
    }

    /// The bytes of its [`Proof`]; `None` if it is not signed, or has more elements than a proof may.
    pub fn proof(&self) -> Option<Vec<u8>> {
        let bytes = [self.table().bytes(), self.signature_block()].concat();
        Proof::parse(&bytes).ok()?;
        Some(bytes)
    }

    /// Its signature block, not verified; `None` if it is not signed.
    ///
    /// # Errors
    /// [`PackageError::Signature`], if the block is malformed.
    pub fn signature(&self) -> Result<Option<Signature<'_>>, PackageError> {
        let block = self.signature_block();
        if block.is_empty() { Ok(None) } else { Signature::parse(block).map(Some) }
    }

    /// The digest by which logs and messages name it, the same signed and unsigned.
    pub fn digest(&self) -> Digest {
        let hash = self.table().hash();
        let (first, _) = hash.split_first_chunk().expect("a hash has 32 bytes");
        Digest::from_bytes(*first)
    }
}

fn message(table: &Table<'_>, job: Option<u128>) -> Vec<u8> {
    let mut message = Vec::with_capacity(MESSAGE_BYTES);
    message.extend_from_slice(PREFIX);
    message.extend_from_slice(&job.unwrap_or(0).to_le_bytes());
    message.extend_from_slice(&table.hash());
    message
}

/// A blob as it travels, and the bytes of the proof after it, if there is one: neither is checked.
pub fn split_proof(bytes: &[u8]) -> (&[u8], &[u8]) {
    match Parsed::claimed_length(bytes) {
        Some(len) if len <= bytes.len() => bytes.split_at(len),
        _ => (bytes, &[]),
    }
}
