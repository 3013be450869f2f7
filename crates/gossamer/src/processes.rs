//! What a program that starts itself again has to see to: the settings that its command line and
//! environment hand on, and the processes that it has started.

use crate::RackError;
use std::{
    env,
    process::Child,
    thread,
    time::{Duration, Instant},
};

/// How long the other hosts of an ended rack may take to exit before they are killed.
const FAREWELL: Duration = Duration::from_secs(5);

/// Reads a number from the arguments or the environment.
pub(crate) fn setting(
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
        .map(|(name, value)| match value.parse() {
            Ok(number) if number > 0 => Ok(number),
            _ => {
                Err(RackError::Settings(format!("{name} takes a number above zero, not {value:?}")))
            }
        })
        .transpose()
}

/// The processes of the other hosts, if this one has started them; killed if they are not seen off.
#[derive(Default)]
pub(crate) struct Others(pub(crate) Vec<Child>);

impl Others {
    /// Waits for the processes to exit; kills those that do not in time, or all of them when the
    /// rack has failed.
    pub(crate) fn see_off(&mut self, ended_well: bool) {
        let deadline = Instant::now() + if ended_well { FAREWELL } else { Duration::ZERO };
        for child in &mut self.0 {
            while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.kill();
    }

    fn kill(&mut self) {
        for mut child in self.0.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.kill();
    }
}
