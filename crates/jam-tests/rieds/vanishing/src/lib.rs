//! Has what the ried `needy` needs.

ried::interface! {
    export {
        /// Ten times the key, if that is not 13.
        pub fn table_vanished(key: u64) -> u64 {
            assert!(key != 13, "unlucky in a ried");
            key * 10
        }
    }
}
