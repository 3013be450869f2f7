//! [`Parser`]: the lines of each format.

use std::fmt::Display;
use std::str::FromStr;

use super::Format;
use crate::kronecker::Edge;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Line {
    Edge(Edge),
    /// A comment, a header, or nothing.
    Other,
}

/// What the lines so far have said.
#[derive(Debug)]
pub(super) struct Parser {
    format: Format,
    /// Vertices and edges, once a line has said so.
    size: Option<(u64, u64)>,
    /// Edges so far.
    edges: u64,
    undirected: bool,
    /// Whether edges have weights, once that is known.
    weighted: Option<bool>,
    /// Whether weights are read: if not, they may be anything.
    weights: bool,
    /// Whether the first line of a Matrix Market file has been read.
    has_banner: bool,
}

impl Parser {
    pub(super) fn new(format: Format, weights: bool) -> Parser {
        let (weighted, has_banner) = ((format == Format::Gr).then_some(true), false);
        Parser { format, size: None, edges: 0, undirected: false, weighted, weights, has_banner }
    }

    /// The number of vertices, if the file has said it.
    pub(super) fn vertices(&self) -> Option<u64> {
        self.size.map(|(vertices, _)| vertices)
    }

    pub(super) fn undirected(&self) -> bool {
        self.undirected
    }

    /// Whether its edges have weights that were read.
    pub(super) fn weighted(&self) -> bool {
        self.weights && self.weighted.unwrap_or(false)
    }

    /// Reads a line.
    pub(super) fn line(&mut self, line: &[u8]) -> Result<Line, String> {
        // Comments are in any encoding, and some programs begin a file with a mark of theirs.
        let text = String::from_utf8_lossy(line);
        let text = text.trim_start_matches('\u{feff}').trim();
        let mut words = text.split_ascii_whitespace();
        match (self.format, words.next()) {
            (Format::Mtx, first) if !self.has_banner => self.banner(first, words),
            (_, None) => Ok(Line::Other),
            (Format::Snap, Some(first)) if first.starts_with(['#', '%']) => {
                // As SNAP's own files have it.
                let comment = text.trim_start_matches(['#', '%', ' ']).to_ascii_lowercase();
                self.undirected |= comment.starts_with("undirected");
                Ok(Line::Other)
            }
            (Format::Snap, Some(from)) => self.edge(Some(from), words),
            (Format::Mtx, Some(first)) if first.starts_with('%') => Ok(Line::Other),
            (Format::Mtx, Some(rows)) if self.size.is_none() => {
                let rows: u64 = number("the number of rows", Some(rows))?;
                let columns: u64 = number("the number of columns", words.next())?;
                if rows != columns {
                    return Err(format!("a graph is a square matrix, got {rows} x {columns}"));
                }
                self.size(rows, number("the number of entries", words.next())?, words.next())
            }
            (Format::Mtx, Some(from)) => self.edge(Some(from), words),
            (Format::Gr, Some("c")) => Ok(Line::Other),
            (Format::Gr, Some("p")) => {
                if self.size.is_some() {
                    return Err("a second line p".to_owned());
                }
                if words.next() != Some("sp") {
                    return Err("expected p sp VERTICES EDGES".to_owned());
                }
                let vertices = number("the number of vertices", words.next())?;
                self.size(vertices, number("the number of edges", words.next())?, words.next())
            }
            (Format::Gr, Some("a")) if self.size.is_none() => {
                Err("an edge before the line p sp VERTICES EDGES".to_owned())
            }
            (Format::Gr, Some("a")) => self.edge(words.next(), words),
            (Format::Gr, Some(other)) => {
                Err(format!("expected a line that begins with a, c or p, got {other:?}"))
            }
        }
    }

    /// What is missing at the end of the file.
    pub(super) fn end(&self) -> Result<(), String> {
        match (self.format, self.size) {
            (Format::Snap, _) => Ok(()),
            (Format::Mtx, _) if !self.has_banner => Err("no first line %%MatrixMarket".to_owned()),
            (_, None) => Err("no line with the size of the graph".to_owned()),
            (_, Some((_, edges))) if edges != self.edges => {
                Err(format!("ends after {} edges of {edges}", self.edges))
            }
            _ => Ok(()),
        }
    }

    /// The first line of a Matrix Market file.
    fn banner<'a>(
        &mut self,
        first: Option<&str>,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<Line, String> {
        let expected = "expected %%MatrixMarket matrix coordinate, then real, integer or pattern, \
                        then general or symmetric";
        let mut next = || words.next().map(str::to_ascii_lowercase);
        let (object, layout, field, symmetry) = (next(), next(), next(), next());
        let is_matrix = first.is_some_and(|first| first.eq_ignore_ascii_case("%%MatrixMarket"))
            && object.as_deref() == Some("matrix")
            && layout.as_deref() == Some("coordinate");
        self.weighted = match field.as_deref() {
            Some("real" | "integer") if is_matrix => Some(true),
            Some("pattern") if is_matrix => Some(false),
            _ => return Err(expected.to_owned()),
        };
        self.undirected = match symmetry.as_deref() {
            Some("symmetric") => true,
            Some("general") => false,
            _ => return Err(expected.to_owned()),
        };
        self.has_banner = true;
        Ok(Line::Other)
    }

    fn size(&mut self, vertices: u64, edges: u64, more: Option<&str>) -> Result<Line, String> {
        self.size = Some((vertices, edges));
        nothing(more)
    }

    /// An edge, whose first word has been read.
    fn edge<'a>(
        &mut self,
        from: Option<&str>,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<Line, String> {
        let (from, to) = (self.vertex(from)?, self.vertex(words.next())?);
        let word = words.next();
        let weight = match *self.weighted.get_or_insert(word.is_some()) {
            true if self.weights => weight(word)?,
            true => word.map(|_| 1.0).ok_or("a weight is missing")?,
            false => match word {
                Some(word) => return Err(format!("{word:?} after an edge without a weight")),
                None => 1.0,
            },
        };
        nothing(words.next())?;
        self.edges += 1;
        if self.size.is_some_and(|(_, edges)| self.edges > edges) {
            return Err(format!("more edges than the {} that the file announces", self.edges - 1));
        }
        Ok(Line::Edge((from, to, weight)))
    }

    fn vertex(&self, word: Option<&str>) -> Result<u64, String> {
        let vertex: u64 = number("a vertex", word)?;
        let first = self.format.first();
        let vertex = vertex.checked_sub(first);
        let vertex = vertex.ok_or_else(|| format!("vertex 0, expected one from {first} on"))?;
        match self.size {
            Some((vertices, _)) if vertex >= vertices => {
                Err(format!("vertex {}, expected one up to {vertices}", vertex + first))
            }
            _ => Ok(vertex),
        }
    }
}

/// A weight: not negative, since no shortest path would exist.
fn weight(word: Option<&str>) -> Result<f32, String> {
    let weight: f32 = number("a weight", word)?;
    match weight >= 0.0 && weight.is_finite() {
        true => Ok(weight),
        false => Err(format!(
            "weight {}, expected a number from 0 to {:e}",
            word.unwrap_or_default(),
            f32::MAX
        )),
    }
}

/// The number that a word is.
fn number<N: FromStr<Err: Display>>(what: &str, word: Option<&str>) -> Result<N, String> {
    let word = word.ok_or_else(|| format!("{what} is missing"))?;
    word.parse().map_err(|error| format!("{word:?}, expected {what}: {error}"))
}

fn nothing(more: Option<&str>) -> Result<Line, String> {
    match more {
        None => Ok(Line::Other),
        Some(more) => Err(format!("unexpected {more:?} at the end of the line")),
    }
}
