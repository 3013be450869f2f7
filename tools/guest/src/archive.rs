//! [`Archive`]: the files that a kernel finds when it starts, in the format that it reads them in
//! (cpio, the variant "newc": a header of hexadecimal numbers, the name, the bytes).

use anyhow::{Context, Result};

/// What a folder and what a program may be used for, as in `stat`.
const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_755;
/// The name that ends an archive.
const LAST: &str = "TRAILER!!!";

/// An archive that is being written.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a folder; those that it is in must be there.
    ///
    /// # Errors
    /// A name or file is too large.
    pub fn folder(&mut self, name: &str) -> Result<()> {
        self.entry(name, FOLDER, &[])
    }

    /// Adds a file, which may be executed.
    ///
    /// # Errors
    /// A name or file is too large.
    pub fn file(&mut self, name: &str, content: &[u8]) -> Result<()> {
        self.entry(name, FILE, content)
    }

    /// The whole archive.
    ///
    /// # Errors
    /// A name or file is too large.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.entry(LAST, 0, &[])?;
        Ok(self.bytes)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.entries += 1;
        let size = u32::try_from(content.len()).context("a file of 4 GiB is too large")?;
        let name_size = u32::try_from(name.len() + 1).context("a name is too long")?;
        // Inode, mode, user, group, links, time, size, four device numbers, name size, checksum.
        let numbers = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        for number in numbers {
            self.bytes.extend(format!("{number:08x}").bytes());
        }
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
        Ok(())
    }

    /// Names and contents end where four divides the position.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_what_the_kernel_expects() {
        let mut archive = Archive::default();
        archive.folder("bin").unwrap();
        archive.file("init", b"#!/bin/sh\n").unwrap();
        let bytes = archive.finish().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        // A header has 110 bytes, and each part is padded to four.
        let headers = [0, 116, 116 + 116 + 12];
        let found: Vec<_> = text.match_indices("070701").map(|(place, _)| place).collect();
        assert_eq!(found, headers);
        let size = |place: usize| u32::from_str_radix(&text[place + 54..place + 62], 16).unwrap();
        assert_eq!(headers.map(size), [0, 10, 0]);
        assert_eq!(&text[116 + 110..116 + 115], "init\0");
        assert!(text.trim_end_matches('\0').ends_with(LAST));
        assert!(text.len().is_multiple_of(4));
    }
}
