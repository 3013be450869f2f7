//! The settings that a program takes from its command line or its environment.

use std::env;
use std::num::IntErrorKind;

use crate::RackError;
use crate::policy::Placement;

/// The value that follows `flag` among the arguments, or that `variable` has in the environment, with
/// the name of its source.
fn value<'a>(arguments: &[String], flag: &'a str, variable: &'a str) -> Option<(&'a str, String)> {
    let mut words = arguments.iter().take_while(|word| *word != "--");
    let mut found = env::var(variable).ok().map(|value| (variable, value));
    while let Some(word) = words.next() {
        if word == flag {
            let value = words.next().cloned().unwrap_or_default();
            found = Some((flag, value));
        } else if let Some(value) = word.strip_prefix(flag).and_then(|rest| rest.strip_prefix('='))
        {
            found = Some((flag, value.to_owned()));
        }
    }
    found
}

/// The options that [`Rack::from_args`](crate::Rack::from_args) reads.
const OPTIONS: [&str; 3] = ["--hosts", "--threads", "--placement"];

/// Refuses arguments that are no option of Gossamer's, but one of them mistyped: they would be left to the
/// program, and the rack would be another one than the user asked for.
pub(crate) fn check_spelling(arguments: &[String]) -> Result<(), RackError> {
    let words = arguments.iter().take_while(|word| *word != "--");
    for word in words.filter(|word| word.starts_with('-')) {
        let name = word.split('=').next().unwrap_or(word);
        if OPTIONS.contains(&name) {
            continue;
        }
        if let Some(option) = OPTIONS.iter().find(|option| is_mistyped(name, option)) {
            return Err(RackError::Settings(format!(
                "unknown option {name}: did you mean {option}? (Options after `--` are left to the \
                 program.)"
            )));
        }
    }
    Ok(())
}

/// Whether `word` is `option` with at most one typing error (a letter wrong, missing, added or swapped with
/// the next: a Damerau-Levenshtein distance of at most 1), whatever its case.
fn is_mistyped(word: &str, option: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let (word, option) = (word.as_bytes(), option.as_bytes());
    let same = word.iter().zip(option).take_while(|(a, b)| a == b).count();
    let (word, option) = (&word[same..], &option[same..]);
    match (word, option) {
        ([a, b, word @ ..], [c, d, option @ ..]) if (a, b) == (d, c) => word == option,
        ([_, word_rest @ ..], [_, option_rest @ ..]) if word.len() == option.len() => {
            word_rest == option_rest
        }
        ([_, rest @ ..], _) if rest == option => true,
        (_, [_, rest @ ..]) => rest == word,
        _ => word == option,
    }
}

/// The error of a setting that has another value than is expected, or none.
fn invalid(name: &str, value: &str, expected: &str) -> RackError {
    let is_missing = value.is_empty() || value.starts_with("--");
    RackError::Settings(match is_missing {
        true => format!("{name} has no value: expected {expected}"),
        false => format!("invalid {name} {value:?}: expected {expected}"),
    })
}

/// The number that follows `flag` among the arguments, or that `variable` has in the environment.
pub(crate) fn number(
    arguments: &[String],
    flag: &str,
    variable: &str,
) -> Result<Option<u32>, RackError> {
    value(arguments, flag, variable)
        .map(|(name, value)| match value.parse::<u32>() {
            Ok(number) if number > 0 => Ok(number),
            // Larger than any rack: its size is checked when it starts.
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(u32::MAX),
            _ => {
                let is_name = flag == "--hosts"
                    && !value.starts_with('-')
                    && value.contains(char::is_alphabetic);
                let hint =
                    if is_name { " (to name machines, use `gossamer run --hosts`)" } else { "" };
                Err(invalid(name, &value, &format!("a positive number{hint}")))
            }
        })
        .transpose()
}

/// The placement that follows `--placement` among the arguments, or that is in the environment.
pub(crate) fn placement(arguments: &[String]) -> Result<Option<Placement>, RackError> {
    value(arguments, "--placement", "GOSSAMER_PLACEMENT")
        .map(|(name, value)| match value.as_str() {
            "own-host" => Ok(Placement::OwnHost),
            "rack" => Ok(Placement::Rack),
            _ => Err(invalid(name, &value, "own-host or rack")),
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_mistyped_option_is_refused() {
        for (line, meant) in [
            ("--host 2", "--hosts"),
            ("x --thread=2", "--threads"),
            ("--placements rack", "--placement"),
            ("--hists 2", "--hosts"),
            ("--hoosts 2", "--hosts"),
            ("--therads 2", "--threads"),
            ("--Hosts 2", "--hosts"),
            ("-hosts 2", "--hosts"),
            ("--hostss=2", "--hosts"),
        ] {
            let message = format!("{:?}", check_spelling(&words(line)).unwrap_err());
            assert!(message.contains(&format!("did you mean {meant}?")), "{line}: {message}");
        }
        for line in [
            "--hosts 2 --threads=3 --placement rack",
            "--help",
            "host",
            "-- --host 2",
            "--ho",
            "-n -5",
        ] {
            check_spelling(&words(line)).unwrap();
        }
    }

    #[test]
    fn an_option_without_a_value_is_not_called_invalid() {
        for line in ["--hosts", "--hosts=", "--hosts --threads=2", "--hosts --roots 5"] {
            let message = format!("{:?}", number(&words(line), "--hosts", "unset").unwrap_err());
            assert!(
                message.contains("--hosts has no value: expected a positive number"),
                "{message}"
            );
            assert!(!message.contains("gossamer run"), "{message}");
        }
        for line in ["--hosts a,b", "--hosts 10a,10b"] {
            let message = format!("{:?}", number(&words(line), "--hosts", "unset").unwrap_err());
            assert!(
                message.contains("invalid --hosts") && message.contains("gossamer run"),
                "{line}"
            );
        }
    }

    #[test]
    fn the_last_placement_before_two_dashes_counts() {
        let placement = |line| placement(&words(line)).unwrap();
        assert_eq!(placement("--placement rack"), Some(Placement::Rack));
        assert_eq!(placement("x --placement=rack --placement own-host"), Some(Placement::OwnHost));
        assert_eq!(placement("--placement rack -- --placement own-host"), Some(Placement::Rack));
        assert_eq!(placement("place"), None);
    }

    #[test]
    fn another_placement_is_refused_with_those_that_there_are() {
        for line in ["--placement", "--placement=Rack", "--placement near"] {
            let message = format!("{:?}", placement(&words(line)).unwrap_err());
            assert!(message.contains("expected own-host or rack"), "{message}");
        }
    }
}
