//! Graphs in files: SNAP edge lists, Matrix Market and DIMACS `.gr`, plain or compressed by gzip.
//!
//! A file is read twice. The first time ([`survey`]) checks every line, counts, and finds the largest
//! vertex: a graph that has a bad line or does not fit in memory is refused before anything is built.
//! The second time ([`Input::edges`]) brings the edges. So a pipe is no such file. Neither keeps more than a line. Both show in a
//! terminal how much of the file they have read.

mod formats;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use serde::{Deserialize, Serialize};

use self::formats::{Line, Parser};
use crate::kronecker::Edge;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Format {
    /// `FROM TO [WEIGHT]` in each line, vertices from 0; `#` begins a comment
    Snap,
    /// Matrix Market, coordinates; vertices from 1
    Mtx,
    /// The 9th DIMACS challenge's format for shortest paths; vertices from 1
    Gr,
}

impl Format {
    /// The format that the name of a file says: `.mtx`, `.gr`, and SNAP for all others; `.gz` at the end
    /// does not count.
    #[must_use]
    pub fn of(path: &str) -> Format {
        let name = path.strip_suffix(".gz").unwrap_or(path);
        match Path::new(name).extension().and_then(|end| end.to_str()) {
            Some("mtx") => Format::Mtx,
            Some("gr") => Format::Gr,
            _ => Format::Snap,
        }
    }

    /// The number of the first vertex.
    #[must_use]
    pub fn first(self) -> u64 {
        u64::from(self != Format::Snap)
    }
}

/// Why a file is no graph.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be opened or read.
    #[error("cannot read {path}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// A line is not as its format demands.
    #[error("{path}:{line}: {reason}")]
    Line {
        /// The file.
        path: String,
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// Something is missing at its end.
    #[error("{path}: {reason}")]
    End {
        /// The file.
        path: String,
        /// What is missing.
        reason: String,
    },
}

/// What a survey has found in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// The file.
    pub path: String,
    /// Its format.
    pub format: Format,
    /// The number of vertices: as the file says, or one more than the largest.
    pub vertices: u64,
    /// The number of edges.
    pub edges: u64,
    /// Whether the file says that its edges have no direction.
    pub undirected: bool,
    /// Whether the edges have weights, which are read.
    pub weighted: bool,
    /// The sum and the largest of the weights.
    pub weights: (f64, f32),
}

/// Reads all of a file, and says what is in it. Weights are read, and checked, if `weights` says so;
/// if not, the graph has none.
///
/// # Errors
/// [`ReadError`], with the line.
pub fn survey(path: &str, format: Format, weights: bool) -> Result<Input, ReadError> {
    let mut lines = Lines::open(path, Parser::new(format, weights), "checking")?;
    let (mut edges, mut largest, mut weights) = (0, None, (0.0, 0.0f32));
    while let Some((from, to, weight)) = lines.next_edge()? {
        edges += 1;
        largest = largest.max(Some(from.max(to)));
        weights = (weights.0 + f64::from(weight), weights.1.max(weight));
    }
    let parser = lines.parser;
    Ok(Input {
        path: path.to_owned(),
        format,
        vertices: parser
            .vertices()
            .unwrap_or_else(|| largest.map_or(0, |largest| largest.saturating_add(1))),
        edges,
        undirected: parser.undirected(),
        weighted: parser.weighted(),
        weights,
    })
}

impl Input {
    /// Brings the edges; if the file has changed since the survey, and is now no graph or a larger one,
    /// they end and `failed` says why.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn edges<'a>(
        &self,
        failed: &'a mut Option<ReadError>,
    ) -> Result<impl Iterator<Item = Edge> + use<'a>, ReadError> {
        let parser = Parser::new(self.format, self.weighted);
        let mut lines = Lines::open(&self.path, parser, "loading")?;
        let (vertices, mut left) = (self.vertices, self.edges);
        Ok(std::iter::from_fn(move || match lines.next_edge() {
            Ok(Some(edge)) if edge.0.max(edge.1) < vertices && left > 0 => {
                left -= 1;
                Some(edge)
            }
            Ok(None) if left == 0 => None,
            Ok(_) => {
                *failed = Some(lines.error("the file has changed while it was read".to_owned()));
                None
            }
            Err(error) => {
                *failed = Some(error);
                None
            }
        }))
    }

    /// The vertex with this number in the file.
    ///
    /// # Errors
    /// If the file has no vertex with this number.
    pub fn vertex(&self, number: u64) -> Result<u64, String> {
        let first = self.format.first();
        match number.checked_sub(first) {
            Some(vertex) if vertex < self.vertices => Ok(vertex),
            _ if self.vertices == 0 => {
                Err(format!("no vertex {number} in {}, which has none", self.path))
            }
            _ => Err(format!(
                "no vertex {number} in {}: they are {first} to {}",
                self.path,
                // The sum may be one more than the largest number.
                self.vertices - 1 + first
            )),
        }
    }
}

/// How the progress of a file looks.
fn progress_style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {wide_bar} {bytes} of {total_bytes}, {eta} left")
        .expect("the template is valid")
}

/// The lines of a file.
struct Lines {
    path: String,
    reader: Box<dyn BufRead>,
    line: Vec<u8>,
    number: u64,
    parser: Parser,
}

/// A line that is longer than this is no line of a graph.
const LONGEST: u64 = 1 << 16;

impl Lines {
    /// Opens a file; `doing` is what a progress bar says that is done with it.
    fn open(path: &str, parser: Parser, doing: &'static str) -> Result<Lines, ReadError> {
        let io = |error| ReadError::Io { path: path.to_owned(), error };
        // Not opened first: that would wait for the other end of a pipe.
        let metadata = fs::metadata(path).map_err(io)?;
        if !metadata.is_file() {
            let reason = "not a file: graphs are read twice, so write it to a file first";
            return Err(io(std::io::Error::other(reason)));
        }
        let file = File::open(path).map_err(io)?;
        // It counts the bytes of the file, compressed if that is.
        let bar = ProgressBar::new(metadata.len())
            .with_style(progress_style())
            .with_message(format!("{doing} {path}"))
            .with_finish(ProgressFinish::AndClear);
        let mut file = BufReader::with_capacity(1 << 18, bar.wrap_read(file));
        let is_gzip = file.fill_buf().map_err(io)?.starts_with(&[0x1f, 0x8b]);
        let reader: Box<dyn BufRead> = match is_gzip {
            true => Box::new(BufReader::with_capacity(1 << 18, MultiGzDecoder::new(file))),
            false => Box::new(file),
        };
        Ok(Lines { path: path.to_owned(), reader, line: Vec::new(), number: 0, parser })
    }

    /// The next edge.
    fn next_edge(&mut self) -> Result<Option<Edge>, ReadError> {
        loop {
            self.line.clear();
            self.number += 1;
            let read = self.reader.by_ref().take(LONGEST).read_until(b'\n', &mut self.line);
            let io = |error| ReadError::Io { path: self.path.clone(), error };
            if read.map_err(io)? == 0 {
                let end = |reason| ReadError::End { path: self.path.clone(), reason };
                return self.parser.end().map(|()| None).map_err(end);
            }
            if self.line.len() as u64 == LONGEST {
                return Err(self.error(format!("longer than {LONGEST} bytes")));
            }
            match self.parser.line(&self.line) {
                Ok(Line::Edge(edge)) => return Ok(Some(edge)),
                Ok(Line::Other) => {}
                Err(reason) => return Err(self.error(reason)),
            }
        }
    }

    fn error(&self, reason: String) -> ReadError {
        ReadError::Line { path: self.path.clone(), line: self.number, reason }
    }
}

#[cfg(test)]
mod tests;
