//! Harmless: counts the bytes of the scratch that are not zero, and then fills it.

jam::property! {
    pub struct Scratch = "gossamer.Scratch@1";
}

/// How many there are.
pub fn scratch(scratch: &mut Scratch, byte: u64) -> u64 {
    let bytes = jam::scratch(scratch);
    let count = bytes.iter().filter(|byte| **byte != 0).count();
    bytes.fill(byte as u8);
    count as u64
}
