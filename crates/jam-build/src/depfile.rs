//! The files that a compiler or cargo has read, from the rule for makefiles that it writes:
//! `MADE: READ READ ..`, with `\` before a space of a path, and at the end of a line that goes on.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The files that the rule in `path` says were read, but for those in `work`, which this crate makes.
pub(crate) fn files_read(path: &Path, work: &Path) -> Result<Vec<PathBuf>, Error> {
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    Ok(of_rule(&text).into_iter().filter(|file| !file.starts_with(work)).collect())
}

/// Of the first rule: compilers write the same files for each of what they make.
fn of_rule(text: &str) -> Vec<PathBuf> {
    let text = text.replace("\\\n", " ");
    let rule = text.lines().next().and_then(|line| line.split_once(": "));
    let (mut files, mut file) = (Vec::new(), String::new());
    for part in rule.map_or("", |(_, files)| files).split(' ') {
        match part.strip_suffix('\\') {
            Some(beginning) => file = file + beginning + " ",
            None => {
                let file = std::mem::take(&mut file) + part;
                // C compilers write these two so.
                files.push(file.replace("$$", "$").replace("\\#", "#"));
            }
        }
    }
    files.into_iter().filter(|file| !file.is_empty()).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_rule() {
        let rule =
            "/my\\ work/x.o: /a/x.c /a\\ b/../c\\ d.h \\\n  /e/f.h \\\n /g$$\\#.h\n\n/e/f.h:\n";
        let files = ["/a/x.c", "/a b/../c d.h", "/e/f.h", "/g$#.h"].map(PathBuf::from);
        assert_eq!(of_rule(rule), files);
        assert!(of_rule("").is_empty() && of_rule("/x.o:\n").is_empty());
    }
}
