//! The scratch segment of an executor, which a jam that is not trusted has as its property.

use crate::Property;

/// The name of the property that is an executor's scratch segment.
pub const SCRATCH: &str = "gossamer.Scratch@1";

/// What a property named [`SCRATCH`] is in memory.
#[derive(Debug)]
#[repr(C)]
pub struct ScratchData {
    /// The first byte.
    pub start: *mut u8,
    /// Bytes.
    pub len: usize,
}

/// The bytes of the scratch segment, in a jam that an executor runs. They are zero at first, except
/// what the executor's owner wrote.
///
/// ```
/// # use gossamer_jam_abi as jam;
/// jam::property! {
///     pub struct Scratch = "gossamer.Scratch@1";
/// }
///
/// pub fn fill(scratch: &mut Scratch, byte: u8) {
///     jam::scratch(scratch).fill(byte);
/// }
/// ```
///
/// Another property is not a scratch segment:
///
/// ```compile_fail
/// # use gossamer_jam_abi as jam;
/// jam::property! {
///     pub struct Shard = "kv.Shard@3";
/// }
///
/// pub fn fill(shard: &mut Shard) {
///     jam::scratch(shard).fill(1);
/// }
/// # fn main() { let _ = fill as fn(&mut Shard); }
/// ```
pub fn scratch<S: Property>(scratch: &mut S) -> &mut [u8] {
    const { assert!(is_scratch(S::NAME), "the property is not \"gossamer.Scratch@1\"") };
    let data = core::ptr::from_mut(scratch).cast::<ScratchData>();
    #[allow(clippy::disallowed_methods, reason = "the executor gives the scratch to this jam only")]
    // SAFETY: a property of this name is one of these, whose bytes are writable and this jam's as long
    // as it has the property.
    unsafe {
        let ScratchData { start, len } = data.read();
        core::slice::from_raw_parts_mut(start, len)
    }
}

const fn is_scratch(name: &str) -> bool {
    let (name, scratch) = (name.as_bytes(), SCRATCH.as_bytes());
    let mut at = 0;
    while at < name.len() && at < scratch.len() && name[at] == scratch[at] {
        at += 1;
    }
    at == name.len() && at == scratch.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::property! {
        struct Scratch = "gossamer.Scratch@1";
    }

    #[test]
    fn the_bytes_are_those_that_the_receiver_names() {
        let mut bytes = [1, 2, 3];
        let mut data = ScratchData { start: bytes.as_mut_ptr(), len: 2 };
        // SAFETY: a property of this name is such data.
        let property = unsafe { &mut *(&raw mut data).cast::<Scratch>() };
        scratch(property).fill(9);
        assert_eq!(bytes, [9, 9, 3]);
        assert!(!is_scratch("gossamer.Scratch@12") && !is_scratch("gossamer"));
    }
}
