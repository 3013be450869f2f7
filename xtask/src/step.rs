//! [`Step`]: one program that a command runs. Its command line is printed before it runs, its output
//! as it comes (and returned to gates that check it), and it is killed after a timeout.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result, anyhow, bail};

/// This program, whatever has been built in its place since it started. For the process itself: a
/// program that it starts finds its own here.
pub(crate) fn itself() -> &'static Path {
    Path::new("/proc/self/exe")
}

/// One program to run.
pub(crate) struct Step {
    command: Command,
    shown: String,
    /// Printed in front of every line of its output.
    label: String,
    timeout: Option<Duration>,
}

impl Step {
    /// A command of xtask.
    pub(crate) fn xtask(root: &Path, arguments: &str) -> Self {
        let mut step = Self::program(root, itself(), arguments);
        step.shown = format!("cargo xtask {arguments}");
        step
    }

    /// The cargo that runs us, with `arguments` split at spaces, in the folder `root`.
    pub(crate) fn cargo(root: &Path, arguments: &str) -> Self {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut step = Self::program(root, cargo, arguments);
        step.shown = format!("cargo {arguments}");
        // Cargo's variables about xtask; build scripts that read them would run again each time
        // that xtask and the user build alternately.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                step.command.env_remove(&name);
            }
        }
        step
    }

    /// `program` with `arguments` split at spaces, in the folder `root`.
    pub(crate) fn program(root: &Path, program: impl AsRef<OsStr>, arguments: &str) -> Self {
        let program = program.as_ref();
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace()).current_dir(root).stdin(Stdio::null());
        let shown = format!("{} {arguments}", program.to_string_lossy());
        Self { command, shown, label: String::new(), timeout: None }
    }

    /// More arguments, split at spaces.
    pub(crate) fn args(self, arguments: &str) -> Self {
        arguments.split_whitespace().fold(self, Step::arg)
    }

    /// One more argument, as it is.
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.shown = format!("{} {}", self.shown, argument.as_ref().to_string_lossy());
        self.command.arg(argument);
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.shown = format!("{name}={:?} {}", value.as_ref().to_string_lossy(), self.shown);
        self.command.env(name, value);
        self
    }

    /// Kills the program if it has not ended after `timeout`. Its helpers that outlive it are not
    /// waited for.
    pub(crate) fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Prints `label` in front of every line that is [read](Self::read), for programs that run in
    /// parallel.
    pub(crate) fn labelled(mut self, label: &str) -> Self {
        label.clone_into(&mut self.label);
        self
    }

    /// Runs the program; an error if it fails.
    pub(crate) fn run(mut self) -> Result<()> {
        eprintln!("$ {}", self.shown);
        let status = match self.timeout {
            None => self.command.status().with_context(|| format!("cannot run {}", self.shown))?,
            Some(_) => return self.spawn_and_read().map(drop),
        };
        succeeded(status, &self.shown)
    }

    /// Runs the program; prints and returns its standard output; an error if it fails.
    pub(crate) fn read(self) -> Result<String> {
        Ok(self.read_timed()?.into_iter().flat_map(|(_, line)| [line, "\n".into()]).collect())
    }

    /// As [`read`](Self::read), line by line, each with the time from the start until it came.
    pub(crate) fn read_timed(mut self) -> Result<Vec<(Duration, String)>> {
        eprintln!("$ {}", self.shown);
        self.spawn_and_read()
    }

    /// As [`read`](Self::read), with its standard error included.
    pub(crate) fn read_all(self) -> Result<String> {
        let program = self.command.get_program();
        let folder = self.command.get_current_dir().context("a step has a folder")?;
        let mut shell =
            Self::program(folder, "sh", "-c").arg("exec \"$0\" \"$@\" 2>&1").arg(program);
        for argument in self.command.get_args() {
            shell.command.arg(argument);
        }
        for (name, value) in self.command.get_envs() {
            shell.command.env(name, value.unwrap_or_default());
        }
        (shell.shown, shell.label, shell.timeout) = (self.shown, self.label, self.timeout);
        shell.read()
    }

    /// Runs the program; returns its standard output without printing it; an error if it fails.
    pub(crate) fn capture(mut self) -> Result<Vec<u8>> {
        eprintln!("$ {}", self.shown);
        let output = self.command.stderr(Stdio::inherit()).output();
        let output = output.with_context(|| format!("cannot run {}", self.shown))?;
        succeeded(output.status, &self.shown).map(|()| output.stdout)
    }

    /// As [`capture`](Self::capture), for its standard error.
    pub(crate) fn capture_errors(mut self) -> Result<String> {
        eprintln!("$ {}", self.shown);
        let output = self.command.output().with_context(|| format!("cannot run {}", self.shown))?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        succeeded(output.status, &self.shown).map(|()| errors)
    }

    /// Whether the program can be run and succeeds; prints nothing.
    pub(crate) fn works(mut self) -> bool {
        let silent = self.command.stdout(Stdio::null()).stderr(Stdio::null());
        silent.status().is_ok_and(|status| status.success())
    }

    fn spawn_and_read(&mut self) -> Result<Vec<(Duration, String)>> {
        let start = Instant::now();
        let end = self.timeout.map(|timeout| start + timeout);
        self.command.stdout(Stdio::piped());
        let mut child =
            self.command.spawn().with_context(|| format!("cannot run {}", self.shown))?;
        let lines = lines_of(&mut child);
        let mut printed = Vec::new();
        loop {
            match next_line(&lines, end) {
                Ok(line) => {
                    println!("{}{line}", self.label);
                    printed.push((start.elapsed(), line));
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err(self.give_up(&mut child)),
            }
        }
        // The output has ended; the program itself may still run.
        let status = loop {
            match (child.try_wait()?, end) {
                (Some(status), _) => break status,
                (None, None) => break child.wait()?,
                (None, Some(end)) if Instant::now() >= end => return Err(self.give_up(&mut child)),
                (None, Some(_)) => thread::sleep(Duration::from_millis(5)),
            }
        };
        succeeded(status, &self.shown).map(|()| printed)
    }

    fn give_up(&self, child: &mut Child) -> anyhow::Error {
        if let Err(error) = child.kill().and_then(|()| child.wait()) {
            return anyhow!(error).context("cannot kill it after its timeout");
        }
        let timeout = self.timeout.unwrap_or_default().as_secs_f32();
        anyhow!("`{}` timed out after {timeout} s and was killed", self.shown)
    }
}

fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let stdout = child.stdout.take().expect("standard output was asked to be piped");
    // Not joined: a helper of the program that outlives it may hold the pipe open for ever.
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_string();
            if sender.send(text).is_err() {
                break;
            }
            line.clear();
        }
    });
    receiver
}

fn next_line(lines: &Receiver<String>, end: Option<Instant>) -> Result<String, RecvTimeoutError> {
    match end {
        None => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
        Some(end) => lines.recv_timeout(end.saturating_duration_since(Instant::now())),
    }
}

fn succeeded(status: ExitStatus, shown: &str) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    bail!("`{shown}` failed: {status}")
}

/// The number of tests that passed, by the summary lines of Rust's test programs in `output`.
pub(crate) fn passed(output: &str) -> usize {
    let summaries = output.lines().filter_map(|line| line.trim().strip_prefix("test result: ok. "));
    summaries.filter_map(|rest| rest.split_once(" passed")?.0.parse::<usize>().ok()).sum()
}

/// Runs test programs; an error if no test ran.
pub(crate) fn counted(step: Step, what: &str) -> Result<()> {
    match passed(&step.read()?) {
        0 => bail!("no {what} ran"),
        count => {
            println!("{count} {what} passed");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Step {
        Step::program(Path::new("/"), "sh", "-c").arg(script)
    }

    #[test]
    fn standard_output_is_read() {
        assert_eq!(shell("echo a; printf c").read().unwrap(), "a\nc\n");
    }

    #[test]
    fn standard_error_is_captured() {
        assert_eq!(shell("echo a; echo b >&2").capture_errors().unwrap(), "b\n");
        assert!(shell("echo b >&2; exit 1").capture_errors().is_err());
    }

    #[test]
    fn lines_come_with_their_times() {
        let printed = shell("echo a; sleep 0.05; echo b").labelled("x| ").read_timed().unwrap();
        let [(first, a), (second, b)] = &printed[..] else { panic!("{printed:?}") };
        assert_eq!((&a[..], &b[..]), ("a", "b"));
        assert!(*second >= *first + Duration::from_millis(40), "{printed:?}");
    }

    #[test]
    fn standard_output_is_captured() {
        assert_eq!(shell("echo a; echo b >&2").capture().unwrap(), b"a\n");
        assert!(shell("echo a; exit 3").capture().is_err());
    }

    #[test]
    fn both_outputs_are_read() {
        let printed =
            shell("echo a; echo $WORD >&2; exec >&-").env("WORD", "b c").read_all().unwrap();
        assert_eq!(printed, "a\nb c\n");
        let error = shell("exit 3").read_all().unwrap_err().to_string();
        assert!(error.contains("`sh -c exit 3` failed"), "{error}");
    }

    #[test]
    fn a_failure_names_the_program() {
        let error = shell("exit 3").read().unwrap_err().to_string();
        assert!(error.contains("`sh -c exit 3` failed") && error.contains('3'), "{error}");
        assert!(shell("exit 3").run().is_err());
        assert!(Step::program(Path::new("/"), "no-such-program", "").run().is_err());
        assert!(!Step::program(Path::new("/"), "no-such-program", "").works());
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let error = shell("exec sleep 600").within(Duration::from_millis(50)).run().unwrap_err();
        assert!(error.to_string().contains("timed out after 0.05 s"), "{error}");
    }

    #[test]
    fn a_program_that_closes_its_output_and_hangs_is_killed() {
        let step = shell("exec >&-; exec sleep 600").within(Duration::from_millis(50));
        assert!(step.run().unwrap_err().to_string().contains("was killed"));
    }

    #[test]
    fn passed_tests_are_added_up_over_programs() {
        let output = "running 2 tests\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
            test result: FAILED. 7 passed; 1 failed\n\
            test result: ok. 40 passed; 0 failed\n";
        assert_eq!(passed(output), 42);
        assert_eq!(passed("nothing here\n"), 0);
    }
}
