//! A word in and a word out, without imports: all that runs is the jam's own code.

/// The word, its bits mixed.
pub fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    word ^ (word >> 33)
}
