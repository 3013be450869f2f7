//! [`Portable`]: the values that the codec takes.
//!
//! A file of its own, because the compiler's messages about other values point here.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// What can cross the rack as an argument or a result: owned data that serde can encode and decode.
///
/// # What is refused
///
/// Values travel without the names of their fields, so a type's `Deserialize` must read exactly
/// what its `Serialize` writes. What would arrive as another value is an error of the call
/// ([`DelegateError::BadArguments`](crate::DelegateError::BadArguments) or
/// [`DelegateError::Refused`](crate::DelegateError::Refused)), and the closure does not run:
///
/// | Attribute or type | Refused | Instead |
/// |---|---|---|
/// | `#[serde(skip_serializing_if)]` | when it leaves a field out | send every field |
/// | `#[serde(skip_serializing)]` or `skip_deserializing` alone | always | `#[serde(skip)]` |
/// | `#[serde(skip)]` on a variant that is not the last | the variants after it | move it to the end |
/// | `#[serde(flatten)]` | always | a field of its own |
/// | `#[serde(untagged)]`, `#[serde(tag)]` | always | an enum without the attribute |
/// | `serde_json::Value` and others that ask what comes next | always | a `String` of JSON |
/// | collections that do not know their length | always | collect them into a `Vec` |
/// | values nested deeper than 128 levels | at the sender | a `Vec` of nodes that refer to each other by index |
/// | values of more than 1 GiB, encoded | at the sender | several calls |
///
/// Strings, byte buffers and vectors of numbers (`Vec<u8>`, `Vec<u64>`, `Box<[f32]>`, also inside
/// other values) are copied as blocks, so that `serde_bytes` is not needed; everything else, arrays
/// included, element by element.
///
/// A [`Trust`](crate::Trust) travels in arguments and results, and in no other format of serde's.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot cross the rack as an argument or a result",
    label = "not owned data that serde can encode and decode",
    note = "derive `serde::Serialize` and `serde::Deserialize` for types of your own; send owned \
            data (`String`, not `&str`) and trusts instead of references, and what an `Rc` or \
            `Arc` holds; of a latch, `launch` instead of `apply`"
)]
pub trait Portable: Serialize + DeserializeOwned + 'static {}
#[diagnostic::do_not_recommend]
impl<V: Serialize + DeserializeOwned + 'static> Portable for V {}
