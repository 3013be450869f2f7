//! [`PackageError`]: why bytes are not a package.

use thiserror::Error;

use crate::BlobError;

/// The length of the longest package, in bytes.
pub const MAX_PACKAGE_BYTES: usize = 64 << 20;
/// The length of the longest text of the types of a package, in bytes.
pub const MAX_TYPES_BYTES: usize = 1 << 20;
/// The version of the format.
pub(crate) const VERSION: u16 = 4;

/// Why bytes are not a package.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PackageError {
    /// There are no bytes at all.
    #[error("not a package: it is empty")]
    Empty,
    /// They are too few, too many, or not as many as its header says.
    #[error("package of {len} bytes, expected {expected}")]
    Length {
        /// How many there are.
        len: usize,
        /// How many there should be.
        expected: usize,
    },
    /// It exceeds the limit.
    #[error("package of {len} bytes, expected at most {MAX_PACKAGE_BYTES}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// They do not begin as a package does.
    #[error("not a package: it begins with \"{}\", expected \"JAMP\"", found.escape_ascii())]
    Magic {
        /// The first four, or all if there are fewer.
        found: Vec<u8>,
    },
    /// It is of another version.
    #[error("package of version {found}, expected {VERSION}")]
    Version {
        /// Its version.
        found: u16,
    },
    /// The bytes of an element are not those that its table was made for.
    #[error("the bytes of element {index} do not match its digest: the package was changed")]
    Changed {
        /// Which of the elements.
        index: usize,
    },
    /// A field of an element is wrong.
    #[error("element {index} of a package: expected {expected}")]
    Element {
        /// Which of the elements.
        index: usize,
        /// What was expected.
        expected: &'static str,
    },
    /// An element that is a jam is not a blob.
    #[error("element {index} of a package is not a jam")]
    Blob {
        /// Which of the elements.
        index: usize,
        /// Why.
        #[source]
        source: BlobError,
    },
    /// A name has other than 1 to 255 printable ASCII characters, or padding is not zero.
    #[error("byte {at} of a package, expected {expected}")]
    Byte {
        /// Its offset.
        at: usize,
        /// What was expected.
        expected: &'static str,
    },
    /// The text of its types is malformed.
    #[error("line {line} of the types of a package: expected {expected}")]
    Types {
        /// Which line, from 1.
        line: usize,
        /// What was expected.
        expected: &'static str,
    },
    /// Its signature block is malformed.
    #[error("signature block of a package: expected {expected}")]
    Signature {
        /// What was expected.
        expected: &'static str,
    },
    /// It has more elements than its header can count. Only when writing.
    #[error("package of {count} elements, expected at most 65535")]
    TooMany {
        /// How many.
        count: usize,
    },
}
