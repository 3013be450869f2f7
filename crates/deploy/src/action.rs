//! [`Action`]: one command of a deployment, which is run, or printed as a line for a shell.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::interrupt::Interrupt;

/// One command, the file it reads and the file it writes.
#[derive(Debug)]
pub struct Action {
    /// Program and arguments.
    words: Vec<String>,
    variables: Vec<(String, String)>,
    input: Option<PathBuf>,
    output: Option<PathBuf>,
}

impl Action {
    /// A program with arguments, as they are.
    pub fn new<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Self {
        let words = words.into_iter().map(Into::into).collect();
        Self { words, variables: Vec::new(), input: None, output: None }
    }

    /// More arguments.
    pub fn args<W: Into<String>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &Path) -> Self {
        self.variables.push((name.into(), value.display().to_string()));
        self
    }

    /// Reads its input from a file.
    pub fn input(mut self, file: &Path) -> Self {
        self.input = Some(file.to_owned());
        self
    }

    /// Writes its output to a file.
    pub fn output(mut self, file: &Path) -> Self {
        self.output = Some(file.to_owned());
        self
    }

    /// The command as a line for a shell.
    pub fn shown(&self) -> String {
        let variables =
            self.variables.iter().map(|(name, value)| format!("{name}={}", quote(value)));
        let mut words: Vec<String> =
            variables.chain(self.words.iter().map(|word| quote(word))).collect();
        for (sign, file) in [('<', &self.input), ('>', &self.output)] {
            words.extend(file.iter().map(|file| format!("{sign} {}", quote(&path(file)))));
        }
        words.join(" ")
    }

    /// The command, without input.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs the command; returns its standard output.
    ///
    /// # Errors
    /// What the command wrote to standard error if it fails; also if it cannot be started, or after a
    /// signal.
    pub fn run(&self, interrupt: &Interrupt) -> Result<String> {
        interrupt.check()?;
        let mut command = self.command();
        if let Some(file) = &self.input {
            let file = File::open(file).with_context(|| format!("cannot read {}", file.display()));
            command.stdin(file?);
        }
        let cannot = || format!("cannot run `{}`{}", self.words[0], package_of(&self.words[0]));
        let output = command.output().with_context(cannot)?;
        interrupt.check()?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let errors = if errors.is_empty() { output.status.to_string() } else { errors };
            bail!("{errors}");
        }
        if let Some(file) = &self.output {
            std::fs::write(file, &output.stdout)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The package to install if a program is missing, for a message.
fn package_of(program: &str) -> &'static str {
    match program {
        "ssh" | "ssh-keygen" => " (apt-get install openssh-client)",
        "ip" => " (apt-get install iproute2)",
        _ => "",
    }
}

/// A path as text.
pub fn path(path: &Path) -> String {
    path.display().to_string()
}

/// A word, quoted for a shell.
pub fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:@,+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_given_to_a_shell() {
        let place = std::env::temp_dir().join(format!("action-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let (from, to) = (place.join("from"), place.join("to it"));
        std::fs::write(&from, "given\n").unwrap();
        let script = "cat; echo \"it's $NAME\"";
        let action = Action::new(["sh", "-c", script]).env("NAME", Path::new("a b"));
        let action = action.input(&from).output(&to);
        let by_shell = Action::new(["sh", "-c", &action.shown()]);
        for action in [action, by_shell] {
            action.run(&Interrupt::never()).unwrap();
            assert_eq!(std::fs::read_to_string(&to).unwrap(), "given\nit's a b\n");
            std::fs::remove_file(&to).unwrap();
        }
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn an_error_is_what_the_command_printed() {
        let run = |script| Action::new(["sh", "-c", script]).run(&Interrupt::never());
        assert_eq!(run("echo no room >&2; exit 3").unwrap_err().to_string(), "no room");
        assert!(run("exit 3").unwrap_err().to_string().contains('3'));
        let missing = Action::new(["no-such-program"]).run(&Interrupt::never()).unwrap_err();
        assert!(missing.to_string().contains("cannot run `no-such-program`"), "{missing}");
    }
}
