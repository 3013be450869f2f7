//! The suite that every backend passes, instantiated by one macro.
