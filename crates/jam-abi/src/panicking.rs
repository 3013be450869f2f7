//! Panics of an Injected Function: the receiver gets what the sender needs to find the line.
//!
//! Formatting a message costs kilobytes of code, so only a message without arguments is passed on.

use core::panic::PanicInfo;

// SAFETY: every receiver exports this function with these types; it reads only the text.
unsafe extern "C" {
    /// Ends the call of the jam. Text is UTF-8, with its length in bytes; a missing one is empty.
    safe fn __jam_panic(
        message: *const u8,
        message_len: usize,
        file: *const u8,
        file_len: usize,
        line: u32,
        column: u32,
    ) -> !;
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let message = info.message().as_str().unwrap_or_default();
    let (file, line, column) = match info.location() {
        Some(location) => (location.file(), location.line(), location.column()),
        None => ("", 0, 0),
    };
    __jam_panic(message.as_ptr(), message.len(), file.as_ptr(), file.len(), line, column)
}
