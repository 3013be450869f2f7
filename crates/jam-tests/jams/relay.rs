//! Sends its payload on, to a property that it does not run on.

jam::import! {
    fn send_then(trust: &str, function: &str, bytes: &[u8]) -> u32;
}

/// What `send_then` says, in the order of the names below.
pub fn relay(payload: &[u8]) -> [u32; 4] {
    [
        send_then("notes", "note", payload),
        send_then("nobody", "note", payload),
        send_then("notes", "table_slot", payload),
        send_then("notes", "note_panic", payload),
    ]
}
