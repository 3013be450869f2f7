//! [`Times`]: how long the parts of a command took.

use std::fmt;
use std::time::{Duration, Instant};

/// The parts of a command, in their order.
pub(crate) struct Times {
    began: Instant,
    parts: Vec<(String, Duration)>,
}

impl Times {
    /// Starts the clock of the whole.
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), parts: Vec::new() }
    }

    /// Measures a part, whatever it returns.
    pub(crate) fn of<R>(&mut self, part: impl Into<String>, doing: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = doing();
        self.add(part, start.elapsed());
        result
    }

    /// Adds a part that was measured elsewhere.
    pub(crate) fn add(&mut self, part: impl Into<String>, took: Duration) {
        self.parts.push((part.into(), took));
    }
}

impl fmt::Display for Times {
    /// A line for each part, and one for the time since the whole began.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (part, time) in &self.parts {
            writeln!(f, "{:>7.1} s  {part}", time.as_secs_f64())?;
        }
        write!(f, "{:>7.1} s  in all", self.began.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_shown_and_their_end() {
        let mut times = Times::new();
        assert_eq!(times.of("building", || 3), 3);
        times.add("a test", Duration::from_millis(2_340));
        let shown = times.to_string();
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines, ["    0.0 s  building", "    2.3 s  a test", "    0.0 s  in all"]);
    }
}
