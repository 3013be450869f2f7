//! [`Times`]: how long the parts of a command took, and how much of the processors. A part that took
//! longer than its share of the processors waited, or ran on fewer of them than there are.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The unit of `/proc/PID/stat`: the same on every architecture that Gossamer runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// The first line of what is shown.
pub(crate) const HEADING: &str = "     time  processors";

/// The parts of a command, in their order.
pub(crate) struct Times {
    began: Instant,
    used: Option<Duration>,
    parts: Vec<Part>,
}

struct Part {
    name: String,
    took: Duration,
    /// The time on processors of the programs that it ran, if known.
    used: Option<Duration>,
}

impl Times {
    /// Starts the clock of the whole.
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), used: used_by_children().ok(), parts: Vec::new() }
    }

    /// Measures a part, whatever it returns. Programs count for the part in which they end.
    pub(crate) fn of<R>(&mut self, part: impl Into<String>, doing: impl FnOnce() -> R) -> R {
        let (start, before) = (Instant::now(), used_by_children().ok());
        let result = doing();
        let (took, used) = (start.elapsed(), used_since(before));
        self.parts.push(Part { name: part.into(), took, used });
        result
    }

    /// Adds a part that was measured elsewhere.
    pub(crate) fn add(&mut self, part: impl Into<String>, took: Duration) {
        self.parts.push(Part { name: part.into(), took, used: None });
    }
}

impl fmt::Display for Times {
    /// A heading, a line for each part, and one for the time since the whole began.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADING}")?;
        for Part { name, took, used } in &self.parts {
            writeln!(f, "{}  {name}", columns(*took, *used))?;
        }
        write!(f, "{}  in all", columns(self.began.elapsed(), used_since(self.used)))
    }
}

/// A time that passed and one of processors, in seconds.
fn columns(took: Duration, used: Option<Duration>) -> String {
    let used = used.map(|used| format!("{:.1} s", used.as_secs_f64())).unwrap_or_default();
    format!("{:>7.1} s  {used:>10}", took.as_secs_f64())
}

/// The time on processors of our children that have ended, and of theirs, since it was `before`.
fn used_since(before: Option<Duration>) -> Option<Duration> {
    Some(used_by_children().ok()?.saturating_sub(before?))
}

/// The time on processors of our children that have ended and were waited for, and of theirs.
fn used_by_children() -> Result<Duration> {
    let path = "/proc/self/stat";
    let stat = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    children_in(&stat).with_context(|| format!("{path}: no times of children in `{stat}`"))
}

/// The fields `cutime` and `cstime` of `/proc/PID/stat`, added up. The second field is the program's
/// name in brackets, which may have any characters.
fn children_in(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut ticks = fields.split(' ').skip(13).map(|field| field.parse::<u32>().ok());
    let ticks = f64::from(ticks.next()??) + f64::from(ticks.next()??);
    Some(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn every_part_is_shown_and_their_end() {
        let mut times = Times::new();
        assert_eq!(times.of("building", || 3), 3);
        times.parts[0].used = Some(Duration::from_millis(4_560));
        times.used = None;
        times.add("a test", Duration::from_millis(2_340));
        let shown = times.to_string();
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(
            lines,
            [
                HEADING,
                "    0.0 s       4.6 s  building",
                "    2.3 s              a test",
                "    0.0 s              in all"
            ]
        );
    }

    #[test]
    fn children_that_ended_are_counted() {
        let mut times = Times::new();
        let count = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let status = times.of("counting", || Command::new("sh").args(["-c", count]).status());
        assert!(status.unwrap().success());
        assert!(times.parts[0].used.unwrap() > Duration::ZERO);
    }

    #[test]
    fn times_of_children_are_found_behind_any_name() {
        let stat = "42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 12 150 75 20 0 1";
        assert_eq!(children_in(stat), Some(Duration::from_millis(2_250)));
        assert_eq!(children_in("42 (a) S 1 2"), None);
    }
}
