//! Plots of measurements, as SVG: what the benchmarks and the applications draw their results with.
//!
//! - [`svg`]: the writer, with the colours of series.
//! - [`mod@file`]: the file that a plot, or other results, are written to.
//! - [`chart`]: curves over one axis, with the spread of each point.

#![forbid(unsafe_code)]

pub mod chart;
pub mod file;
pub mod svg;
