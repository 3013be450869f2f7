//! [`Statistics`] of the times and rates of a benchmark, as the Graph500 specification prints them.

use std::fmt::Write;

/// The quartiles, the mean and the standard deviation of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// Minimum, first quartile, median, third quartile, maximum.
    pub quartiles: [f64; 5],
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the sample; 0 of a single value.
    pub deviation: f64,
}

impl Statistics {
    /// The statistics of a sample.
    ///
    /// # Panics
    /// If it is empty.
    #[must_use]
    pub fn of(sample: &[f64]) -> Statistics {
        let (n, mut sorted) = (sample.len(), sample.to_vec());
        sorted.sort_by(f64::total_cmp);
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|x| (x - mean).powi(2)).sum();
        let between = |a: usize, b: usize| (sorted[a] + sorted[b]) / 2.0;
        let quartiles = [
            sorted[0],
            between((n - 1) / 4, n / 4),
            between((n - 1) / 2, n / 2),
            between(n - 1 - (n - 1) / 4, n - 1 - n / 4),
            sorted[n - 1],
        ];
        Statistics { quartiles, mean, deviation: (squares / (n.max(2) - 1) as f64).sqrt() }
    }
}

const QUARTILES: [&str; 5] = ["min", "firstquartile", "median", "thirdquartile", "max"];

/// Writes the block of one quantity, such as `bfs  min_time:`.
pub fn write_block(text: &mut String, kernel: &str, quantity: &str, sample: &[f64]) {
    let of = Statistics::of(sample);
    for (name, value) in QUARTILES.iter().zip(of.quartiles) {
        line(text, &format!("{kernel}{name}_{quantity}"), value);
    }
    line(text, &format!("{kernel}mean_{quantity}"), of.mean);
    line(text, &format!("{kernel}stddev_{quantity}"), of.deviation);
}

/// Writes the block of rates, edges per second, whose mean is harmonic. `seconds` are those per edge.
pub fn write_rates(text: &mut String, kernel: &str, seconds: &[f64]) {
    let of = Statistics::of(seconds);
    for (name, value) in QUARTILES.iter().zip(of.quartiles.iter().rev()) {
        line(text, &format!("{kernel}{name}_TEPS"), 1.0 / value);
    }
    line(text, &format!("{kernel}harmonic_mean_TEPS"), 1.0 / of.mean);
    // Norris (1940), as the specification has it.
    let n = (seconds.len().max(2) - 1) as f64;
    let deviation = of.deviation / (of.mean * of.mean * n.sqrt());
    line(text, &format!("{kernel}harmonic_stddev_TEPS"), deviation);
}

/// Writes a name and a value.
pub fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{:<32}{value}", format!("{name}:"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_those_of_the_specification() {
        let of = Statistics::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(of.quartiles, [1.0, 1.5, 2.5, 3.5, 4.0]);
        assert_eq!(of.mean, 2.5);
        assert!((of.deviation - (5.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Statistics::of(&[7.0]).deviation, 0.0);
    }

    #[test]
    fn rates_are_reciprocals_with_a_harmonic_mean() {
        let mut text = String::new();
        write_rates(&mut text, "bfs  ", &[0.5, 0.25]);
        assert!(text.contains("bfs  min_TEPS:                  2\n"), "{text}");
        assert!(text.contains("bfs  max_TEPS:                  4\n"), "{text}");
        let mean = text.lines().find(|line| line.contains("harmonic_mean")).unwrap();
        assert!(mean.ends_with("2.6666666666666665"), "{mean}");
    }
}
