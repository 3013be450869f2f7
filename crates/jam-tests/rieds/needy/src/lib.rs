//! Needs what only the ried `vanishing` has.

ried::interface! {
    import {
        fn table_vanished(key: u64) -> u64;
    }
    export {
        /// What `vanishing` says, and one.
        pub fn needy_next(key: u64) -> u64 {
            table_vanished(key) + 1
        }
    }
}
