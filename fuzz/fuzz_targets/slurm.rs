//! What tasks say to each other when they meet under Slurm.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossamer_job::slurm::fuzzing::slurm(data));
