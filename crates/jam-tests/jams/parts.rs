//! Arguments that end inside a word, and a longer result that does, too.

/// The arguments, and after them the first of them, counted up.
pub fn parts(args: [u8; 11]) -> [u8; 19] {
    core::array::from_fn(|at| match args.get(at) {
        Some(byte) => *byte,
        None => args[0].wrapping_add(at as u8),
    })
}
