//! Ends the process with a message, where nothing else is left to do.

/// Writes a message to standard error and aborts, using only what a signal handler may use.
pub(crate) fn die(parts: &[&[u8]]) -> ! {
    for part in parts {
        let mut rest = *part;
        while !rest.is_empty() {
            // SAFETY: the pointer and length describe `rest`.
            let written = unsafe { libc::write(2, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(written) {
                Ok(bytes) if bytes > 0 => rest = &rest[bytes.min(rest.len())..],
                // Standard error is gone, so nothing can be reported.
                _ => break,
            }
        }
    }
    // SAFETY: abort takes no arguments and does not return.
    unsafe { libc::abort() }
}
