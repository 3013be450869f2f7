//! [`Lines`]: the output of a process as whole lines with its name in front.

use daemon_protocol::Stream;

/// Bytes after which a line without an end counts as complete.
const LONGEST_LINE: usize = 64 << 10;

/// The incomplete lines of one process, one for each of its outputs.
#[derive(Debug)]
pub(crate) struct Lines {
    prefix: String,
    begun: [Vec<u8>; 2],
}

impl Lines {
    /// Lines of the process with this name.
    pub(crate) fn new(process: &str) -> Self {
        Self { prefix: format!("[{process}] "), begun: Default::default() }
    }

    /// Adds output; returns the lines that are now complete.
    pub(crate) fn take(&mut self, stream: Stream, bytes: &[u8]) -> Vec<u8> {
        let begun = &mut self.begun[stream as usize];
        begun.extend_from_slice(bytes);
        let whole = match begun.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if begun.len() > LONGEST_LINE => begun.len(),
            None => 0,
        };
        let rest = begun.split_off(whole);
        let whole = std::mem::replace(begun, rest);
        self.prefixed(&whole)
    }

    /// The incomplete lines.
    pub(crate) fn finish(self) -> [(Stream, Vec<u8>); 2] {
        let [out, err] = &self.begun;
        [(Stream::Out, self.prefixed(out)), (Stream::Err, self.prefixed(err))]
    }

    fn prefixed(&self, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(bytes.len() + 64);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            text.extend_from_slice(self.prefix.as_bytes());
            text.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                text.push(b'\n');
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_have_names() {
        let mut lines = Lines::new("a");
        assert_eq!(lines.take(Stream::Out, b"one\ntw"), b"[a] one\n");
        assert_eq!(lines.take(Stream::Err, b"oh"), b"");
        assert_eq!(lines.take(Stream::Out, b"o\n\n"), b"[a] two\n[a] \n");
        let [out, err] = lines.finish();
        assert_eq!((out.1.as_slice(), err.1.as_slice()), (&b""[..], &b"[a] oh\n"[..]));
    }

    #[test]
    fn a_line_without_an_end_is_not_kept_for_ever() {
        let mut lines = Lines::new("a");
        let mut printed = 0;
        for _ in 0..5 {
            printed += lines.take(Stream::Out, &[b'x'; LONGEST_LINE / 4]).len();
        }
        assert!(printed > LONGEST_LINE);
    }
}
