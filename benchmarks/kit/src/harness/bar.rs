//! Bars: what a figure is compared with, and what must come out.

use crate::measure::latency::Class;

/// Another case, or several, that a case is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The case of this name in the same suite.
    Case(String),
    /// The case with the best median among those of the suite whose name starts so.
    Best(String),
}

impl Peer {
    /// The case named `name`.
    pub fn case(name: impl Into<String>) -> Peer {
        Peer::Case(name.into())
    }

    /// The best of the cases whose names start with `prefix`.
    pub fn best(prefix: impl Into<String>) -> Peer {
        Peer::Best(prefix.into())
    }
}

/// A bound that a number is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// The number must not be below.
    AtLeast(f64),
    /// The number must not be above.
    AtMost(f64),
}

impl Limit {
    fn holds(self, number: f64) -> bool {
        match self {
            Limit::AtLeast(bound) => number >= bound,
            Limit::AtMost(bound) => number <= bound,
        }
    }

    fn text(self, of: &str) -> String {
        match self {
            Limit::AtLeast(bound) => format!("{of} >= {bound}"),
            Limit::AtMost(bound) => format!("{of} <= {bound}"),
        }
    }
}

/// What must come out: a limit on the ratio to the peer, on the value itself, or either of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bar {
    ratio: Option<Limit>,
    value: Option<Limit>,
}

impl Bar {
    /// The median divided by the peer's must keep `limit`.
    pub fn ratio(limit: Limit) -> Bar {
        Bar { ratio: Some(limit), value: None }
    }

    /// The median itself must keep `limit`, in the unit of the case.
    pub fn value(limit: Limit) -> Bar {
        Bar { ratio: None, value: Some(limit) }
    }

    /// It is enough when the median itself keeps `limit`.
    pub fn or_value(self, limit: Limit) -> Bar {
        Bar { value: Some(limit), ..self }
    }

    /// Whether the bar holds, or `None` when the number it needs was not measured.
    ///
    /// ```
    /// use bench_kit::harness::{Bar, Limit::AtLeast};
    /// let bar = Bar::ratio(AtLeast(0.75)).or_value(AtLeast(150.0));
    /// assert_eq!(bar.holds(160.0, Some(0.5)), Some(true));
    /// assert_eq!(bar.holds(140.0, Some(0.5)), Some(false));
    /// assert_eq!(bar.holds(140.0, None), None);
    /// ```
    pub fn holds(self, value: f64, ratio: Option<f64>) -> Option<bool> {
        let by_value = self.value.map(|limit| limit.holds(value));
        let by_ratio = self.ratio.map(|limit| ratio.map(|ratio| limit.holds(ratio)));
        match (by_value, by_ratio) {
            (Some(true), _) | (_, Some(Some(true))) => Some(true),
            (_, Some(None)) | (None, None) => None,
            (_, Some(Some(false))) | (Some(false), None) => Some(false),
        }
    }

    /// The bar in words, such as "ratio >= 0.75 or value >= 150".
    pub fn text(self) -> String {
        let ratio = self.ratio.map(|limit| limit.text("ratio"));
        let value = self.value.map(|limit| limit.text("value"));
        ratio.into_iter().chain(value).collect::<Vec<_>>().join(" or ")
    }
}

/// One line of comparison for a case.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// With whom; `None` when only the value is held against a bar.
    pub peer: Option<Peer>,
    /// What must come out; `None` when the ratio is only reported.
    pub bar: Option<Bar>,
    /// The distance class in which the bar counts; `None` for all.
    pub only: Option<Class>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_what_it_asks() {
        let bar = Bar::ratio(Limit::AtLeast(0.75)).or_value(Limit::AtLeast(150.0));
        assert_eq!(bar.text(), "ratio >= 0.75 or value >= 150");
        assert_eq!(Bar::value(Limit::AtMost(20.0)).text(), "value <= 20");
    }

    #[test]
    fn bars_hold_at_their_bounds() {
        assert_eq!(Bar::value(Limit::AtMost(20.0)).holds(20.0, None), Some(true));
        assert_eq!(Bar::value(Limit::AtMost(20.0)).holds(20.1, None), Some(false));
        assert_eq!(Bar::ratio(Limit::AtMost(1.0)).holds(9.0, Some(1.0)), Some(true));
        assert_eq!(Bar::ratio(Limit::AtMost(1.0)).holds(9.0, None), None);
        assert_eq!(Bar::default().holds(9.0, Some(1.0)), None);
    }
}
