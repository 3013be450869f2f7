//! Part of `cargo xtask lint`: subjects of commits have at most 72 characters, so that lists of
//! commits show them whole. Checked are the commits since the last tag; without a tag, the last 50;
//! without a repository, none.

use anyhow::{Result, bail};

use crate::step::Step;
use crate::workspace::Workspace;

/// The most characters that a subject may have.
const LONGEST: usize = 72;
/// How many commits are checked if there is no tag.
const WITHOUT_TAG: u32 = 50;

/// Checks the commits of this repository, and prints which.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let git = |arguments: &str| Step::program(&workspace.root, "git", arguments);
    if !git("rev-parse --verify --quiet HEAD").works() {
        println!("lint: no git repository, so no subjects of commits were checked");
        return Ok(());
    }
    let tag = "describe --tags --abbrev=0";
    let (range, shown) = if git(tag).works() {
        let tag = String::from_utf8(git(tag).capture()?)?.trim().to_owned();
        (format!("{tag}..HEAD"), format!("since the tag {tag}"))
    } else {
        (format!("--max-count={WITHOUT_TAG} HEAD"), format!("(the last {WITHOUT_TAG}; no tag)"))
    };
    let log =
        String::from_utf8_lossy(&git("log --format=%h%x20%s").args(&range).capture()?).into_owned();
    let count = log.lines().count();
    let long = too_long(&log);
    if !long.is_empty() {
        bail!(
            "{} subjects of commits are longer than {LONGEST} characters:\n  {}",
            long.len(),
            long.join("\n  ")
        );
    }
    println!("lint: the subjects of {count} commits {shown} have at most {LONGEST} characters");
    Ok(())
}

/// The lines of `log`, each a hash and a subject, whose subjects are too long, with their lengths.
fn too_long(log: &str) -> Vec<String> {
    let subjects = log.lines().filter_map(|line| line.split_once(' '));
    let lengths = subjects.map(|(hash, subject)| (hash, subject, subject.chars().count()));
    let long = lengths.filter(|(_, _, length)| *length > LONGEST);
    long.map(|(hash, subject, length)| format!("{hash} ({length}): {subject}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_of_72_characters_pass_and_longer_ones_do_not() {
        let fits = format!("aaaaaaa {}\nbbbbbbb short\nccccccc \n", "x".repeat(72));
        assert_eq!(too_long(&fits), [""; 0]);
        assert_eq!(too_long(""), [""; 0]);
        let long = "y".repeat(73);
        let log = format!("{fits}ddddddd {long}\n");
        assert_eq!(too_long(&log), [format!("ddddddd (73): {long}")]);
    }

    #[test]
    fn characters_count_and_not_bytes() {
        assert_eq!(too_long(&format!("aaaaaaa {}", "ü".repeat(72))), [""; 0]);
        assert_eq!(too_long(&format!("aaaaaaa {}", "ü".repeat(73))).len(), 1);
    }
}
