//! Plots of measurements, as SVG: what the benchmarks and the applications draw their results with.
//!
//! - [`svg`]: the writer, with the colours of series.
//! - [`chart`]: curves over one axis, with the spread of each point.

#![forbid(unsafe_code)]

pub mod chart;
pub mod svg;
