//! Programs that must not compile with `gossamer`, and the compiler's message for each: `tests/ui`,
//! and `tests/ui-nightly` for the feature `nightly`. A crate of its own, because each is built
//! against all that its crate depends on, and the examples and unit tests of `gossamer` depend on more.
