//! Fibers and callbacks that borrow from the fiber that started them, on its thread and on others.

mod common;
mod held;
mod running;
mod teardown;
