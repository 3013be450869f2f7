//! Finds a key in the index, by whatever way that has.

jam::property! {
    pub struct Index = "examples.Index@1";
}

jam::import! {
    fn index_find(index: &mut Index, key: u64) -> i64;
}

/// Where a key is; -1 if it is nowhere.
pub fn find(index: &mut Index, key: u64) -> i64 {
    index_find(index, key)
}
