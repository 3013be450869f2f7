//! Harmless: logs, and panics.

use jam::Context;

/// Logs so often, then panics.
pub fn talks(cx: &Context<'_>, times: u64, payload: &[u8]) -> u64 {
    for _ in 0..times {
        cx.log("a line");
    }
    if payload.is_empty() {
        panic!("nothing to say");
    }
    u64::from(payload[times as usize])
}
