//! Test programs with a `main` of their own. One that starts itself again needs that, because a process
//! that it has started must not run the tests. They take the arguments of every test program, and
//! print what every test program prints.

#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Which cases to run, by the arguments of the program.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection {
    wanted: Vec<String>,
    skipped: Vec<String>,
    lists: bool,
}

impl Selection {
    /// Words without dashes are parts of names to run, those after `--skip` of names not to run.
    fn of(arguments: impl IntoIterator<Item = String>) -> Self {
        let (mut selection, mut words) = (Self::default(), arguments.into_iter());
        while let Some(word) = words.next() {
            match word.as_str() {
                "--skip" => selection.skipped.extend(words.next()),
                "--list" => selection.lists = true,
                word if word.starts_with('-') => {}
                _ => selection.wanted.push(word),
            }
        }
        selection
    }

    fn has(&self, name: &str) -> bool {
        let is_in = |words: &[String]| words.iter().any(|word| name.contains(word));
        (self.wanted.is_empty() || is_in(&self.wanted)) && !is_in(&self.skipped)
    }
}

/// Runs the cases that the arguments select, `at_once` at a time, by calling `run` with the name of each
/// and what it is; a single one at a time on this thread. An error of `run` is printed.
pub fn run<C: Sync>(
    cases: impl IntoIterator<Item = (String, C)>,
    at_once: usize,
    run: impl Fn(&str, &C) -> Result<(), String> + Sync,
) -> ExitCode {
    run_selected(&Selection::of(std::env::args().skip(1)), cases, at_once, run)
}

/// Runs functions in this process, one after the other; one that panics has failed. Calls `run` with the
/// name and the function of each.
pub fn run_here(cases: &[(&str, fn())], run: impl Fn(&str, fn()) + Sync) -> ExitCode {
    let cases = cases.iter().map(|(name, case)| ((*name).to_owned(), *case));
    self::run(cases, 1, |name, case| unless_it_panics(name, || run(name, *case)))
}

fn unless_it_panics(name: &str, case: impl FnOnce()) -> Result<(), String> {
    // The panic has been printed.
    catch_unwind(AssertUnwindSafe(case)).map_err(|_| format!("{name} panicked"))
}

fn run_selected<C: Sync>(
    selection: &Selection,
    cases: impl IntoIterator<Item = (String, C)>,
    at_once: usize,
    run: impl Fn(&str, &C) -> Result<(), String> + Sync,
) -> ExitCode {
    let cases: Vec<_> = cases.into_iter().filter(|(name, _)| selection.has(name)).collect();
    if selection.lists {
        cases.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (queue, failed) = (Mutex::new(cases.iter()), AtomicUsize::new(0));
    let work = || {
        loop {
            let Some((name, case)) = queue.lock().expect("no panic").next() else { break };
            let outcome = run(name, case);
            println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
            if let Err(message) = outcome {
                println!("{message}");
                failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    match at_once {
        1 => work(),
        _ => thread::scope(|scope| (0..at_once).for_each(|_| drop(scope.spawn(work)))),
    }
    let failed = failed.into_inner();
    let outcome = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {outcome}. {} passed; {failed} failed", cases.len() - failed);
    ExitCode::from(u8::from(failed > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(words: &str) -> Selection {
        Selection::of(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn names_are_selected_by_their_parts() {
        assert!(selection("--nocapture").has("a_case"));
        let some = selection("one --test-threads=1 two --skip three");
        for (name, has) in [("case_one", true), ("two_three", false), ("four", false)] {
            assert_eq!(some.has(name), has, "{name}");
        }
        assert!(selection("--list").lists && !selection("--skip --list").lists);
    }

    #[test]
    fn all_selected_cases_run_and_failures_are_counted() {
        for at_once in [1, 3] {
            let ran = Mutex::new(Vec::new());
            let cases = (0..10).map(|number| (format!("case_{number}"), number));
            let end = run_selected(&selection("--skip case_7"), cases, at_once, |name, number| {
                ran.lock().unwrap().push(*number);
                if *number == 3 { Err(format!("{name} failed")) } else { Ok(()) }
            });
            let mut ran = ran.into_inner().unwrap();
            ran.sort();
            assert_eq!(ran, [0, 1, 2, 3, 4, 5, 6, 8, 9]);
            assert_eq!(format!("{end:?}"), format!("{:?}", ExitCode::FAILURE));
        }
    }

    #[test]
    fn a_case_that_panics_has_failed() {
        assert_eq!(unless_it_panics("falls", || panic!("it fell")), Err("falls panicked".into()));
        assert_eq!(unless_it_panics("stands", || ()), Ok(()));
    }
}
