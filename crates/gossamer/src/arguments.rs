//! The numbers that a program takes from its command line or its environment.

use std::env;
use std::num::IntErrorKind;

use crate::RackError;

/// The number that follows `flag` among the arguments, or that `variable` has in the environment.
pub(crate) fn number(
    arguments: &[String],
    flag: &str,
    variable: &str,
) -> Result<Option<u32>, RackError> {
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
        .map(|(name, value)| match value.parse::<u32>() {
            Ok(number) if number > 0 => Ok(number),
            // Larger than any rack: its size is checked when it starts.
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(u32::MAX),
            _ => Err(RackError::Settings(format!(
                "invalid {name} {value:?}: expected a positive number"
            ))),
        })
        .transpose()
}
