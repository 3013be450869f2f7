//! Another way to find a key: the index is sorted, which its own function makes no use of.

ried::property! {
    /// The index of the server.
    pub struct Index = "examples.Index@1";
}

ried::interface! {
    import {
        fn index_len(index: &mut Index) -> u64;
        fn index_key(index: &mut Index, at: u64) -> u64;
    }
    export {
        /// Where a key is; -1 if it is nowhere.
        pub fn index_find(index: &mut Index, key: u64) -> i64 {
            let (mut from, mut to) = (0, index_len(index));
            while from < to {
                let middle = from.midpoint(to);
                match index_key(index, middle) {
                    found if found == key => return middle as i64,
                    found if found < key => from = middle + 1,
                    _ => to = middle,
                }
            }
            -1
        }
    }
}
