//! Fibers of one thread and of several: how they start, wait, are scheduled and joined.

mod initialisers;
mod joining;
mod scheduling;
mod starting;
mod waiting;
