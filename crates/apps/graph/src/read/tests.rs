//! Tests of the readers: every format, plain and compressed, and lines that they refuse.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;

fn file(text: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text).unwrap();
    file
}

/// Reads a text both times, plain and compressed.
fn read(text: &str, format: Format) -> Result<(Input, Vec<Edge>), String> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let [plain, compressed] = [text.as_bytes().to_vec(), gzip.finish().unwrap()].map(|bytes| {
        let file = file(&bytes);
        let path = file.path().to_str().unwrap();
        let input =
            survey(path, format, true).map_err(|error| error.to_string().replace(path, "file"))?;
        let mut failed = None;
        let edges: Vec<Edge> = input.edges(&mut failed).unwrap().collect();
        assert!(failed.is_none());
        Ok((Input { path: "file".to_owned(), ..input }, edges))
    });
    assert_eq!(plain, compressed);
    plain
}

#[test]
fn a_snap_file_with_and_without_weights() {
    let (input, edges) = read("# Undirected graph\n0\t3\n\n3 1\r\n", Format::Snap).unwrap();
    assert_eq!(edges, [(0, 3, 1.0), (3, 1, 1.0)]);
    assert_eq!(
        (input.vertices, input.edges, input.undirected, input.weighted),
        (4, 2, true, false)
    );
    let (input, edges) = read("5 2 0.5\n2 5 1.5", Format::Snap).unwrap();
    assert_eq!(edges, [(5, 2, 0.5), (2, 5, 1.5)]);
    assert_eq!((input.undirected, input.weighted, input.weights), (false, true, (2.0, 1.5)));
    assert_eq!(read("", Format::Snap).unwrap().0.vertices, 0);
}

#[test]
fn a_matrix_market_file() {
    let text =
        "%%MatrixMarket matrix coordinate real symmetric\n% comment\n4 4 2\n1 2 3\n4 1 2.5\n";
    let (input, edges) = read(text, Format::Mtx).unwrap();
    assert_eq!(edges, [(0, 1, 3.0), (3, 0, 2.5)]);
    assert_eq!((input.vertices, input.undirected, input.weighted), (4, true, true));
    assert_eq!((input.vertex(4), input.vertex(0).is_err()), (Ok(3), true));
}

#[test]
fn a_dimacs_file() {
    let (input, edges) = read("c x\np sp 3 2\na 1 2 17\na 2 3 4\n", Format::Gr).unwrap();
    assert_eq!(edges, [(0, 1, 17.0), (1, 2, 4.0)]);
    assert_eq!((input.vertices, input.undirected, input.weighted), (3, false, true));
}

#[test]
fn bad_input_is_named_by_line() {
    let mtx = "%%MatrixMarket matrix coordinate pattern general\n3 3 1\n";
    for (format, text, expected) in [
        (Format::Snap, "0 1\n1 x\n", "file:2: \"x\", expected a vertex"),
        (Format::Snap, "0 1\n\n7\n", "file:3: a vertex is missing"),
        (Format::Snap, "0 1 2\n1 2\n", "file:2: a weight is missing"),
        (Format::Snap, "0 1\n1 2 2\n", "file:2: \"2\" after an edge without a weight"),
        (Format::Snap, "0 1 -2\n", "file:1: weight -2, expected a number from 0 to 3.4028235e38"),
        (Format::Snap, "0 1 nan\n", "file:1: weight nan, expected"),
        (Format::Snap, "0 1 1e39\n", "file:1: weight 1e39, expected a number from 0 to 3.4"),
        (Format::Mtx, "3 3 1\n", "file:1: expected %%MatrixMarket"),
        (Format::Mtx, "%%MatrixMarket matrix array real general\n", "file:1: expected %%Matrix"),
        (Format::Mtx, &format!("{mtx}0 1\n"), "file:3: vertex 0, expected one from 1 on"),
        (Format::Mtx, &format!("{mtx}1 4\n"), "file:3: vertex 4, expected one up to 3"),
        (Format::Mtx, &format!("{mtx}1 3\n1 2\n"), "file:4: more edges than the 1 that"),
        (Format::Mtx, mtx, "file: ends after 0 edges of 1"),
        (Format::Gr, "a 1 2 3\n", "file:1: an edge before the line p sp"),
        (Format::Gr, "p sp 2 1\ne 1 2\n", "file:2: expected a line that begins with a, c or p"),
        (Format::Gr, "", "file: no line with the size of the graph"),
    ] {
        let error = read(text, format).unwrap_err();
        assert!(error.starts_with(expected), "{error}\nexpected {expected}");
    }
    let missing = survey("/no/such/graph", Format::Snap, true).unwrap_err();
    assert!(missing.to_string().starts_with("cannot read /no/such/graph"), "{missing}");
}

/// Weights that no path can use, of a graph whose weights do not matter; a comment in Latin-1 after a
/// byte order mark, and one that only mentions a graph without directions.
#[test]
fn what_does_not_matter_is_not_refused() {
    let file =
        file(b"\xef\xbb\xbf# Universit\xe4t\n# Directed, of an undirected one\n0 1 -5\n1 0 x\n");
    let path = file.path().to_str().unwrap();
    let input = survey(path, Format::Snap, false).unwrap();
    assert_eq!((input.edges, input.undirected, input.weighted), (2, false, false));
    assert!(survey(path, Format::Snap, true).is_err());
    let mut failed = None;
    let edges: Vec<Edge> = input.edges(&mut failed).unwrap().collect();
    assert_eq!((edges, failed.is_none()), (vec![(0, 1, 1.0), (1, 0, 1.0)], true));
}

/// A file that has lost a line, or got one, between the two readings; and one that cannot be read twice.
#[test]
fn a_file_that_changes_is_noticed() {
    for text in ["0 1\n", "0 1\n1 0\n0 1\n", "0 1\n1 2\n"] {
        let mut file = file(b"0 1\n1 0\n");
        let input = survey(file.path().to_str().unwrap(), Format::Snap, true).unwrap();
        file.as_file_mut().set_len(0).unwrap();
        std::fs::write(file.path(), text).unwrap();
        let mut failed = None;
        assert!(input.edges(&mut failed).unwrap().count() < 3);
        let failed = failed.expect(text).to_string();
        assert!(failed.contains("the file has changed while it was read"), "{failed}");
    }
    let folder = survey("/", Format::Snap, true).unwrap_err();
    assert!(gossamer::Chain(&folder).to_string().contains("graphs are read twice"), "{folder}");
}

#[test]
fn the_name_of_a_file_says_its_format() {
    assert_eq!(Format::of("a/b.mtx.gz"), Format::Mtx);
    assert_eq!(Format::of("usa.gr"), Format::Gr);
    assert_eq!(Format::of("roads.txt.gz"), Format::Snap);
}

proptest! {
    #[test]
    fn edges_that_are_written_are_read(
        edges in prop::collection::vec((0u64..100, 0u64..100, 0u32..1000), 1..50),
    ) {
        let list = |first: u64, start: &str| -> String {
            let line = |(from, to, weight): &(u64, u64, u32)| {
                format!("{start}{} {} {weight}\n", from + first, to + first)
            };
            edges.iter().map(line).collect()
        };
        let count = edges.len();
        let banner = "%%MatrixMarket matrix coordinate integer general";
        let texts = [
            (Format::Snap, list(0, "")),
            (Format::Mtx, format!("{banner}\n100 100 {count}\n{}", list(1, ""))),
            (Format::Gr, format!("p sp 100 {count}\n{}", list(1, "a "))),
        ];
        let expected: Vec<Edge> = edges.iter().map(|edge| (edge.0, edge.1, edge.2 as f32)).collect();
        for (format, text) in texts {
            prop_assert_eq!(&read(&text, format).unwrap().1, &expected);
        }
    }

    #[test]
    fn no_input_makes_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for format in [Format::Snap, Format::Mtx, Format::Gr] {
            let file = file(&bytes);
            let _ = survey(file.path().to_str().unwrap(), format, true);
        }
    }

    #[test]
    fn no_line_makes_a_parser_panic(
        lines in prop::collection::vec("(%%MatrixMarket matrix coordinate real general|[acp#%]? ?[-0-9a-z. ]{0,20})", 0..8),
    ) {
        for format in [Format::Snap, Format::Mtx, Format::Gr] {
            let mut parser = Parser::new(format, true);
            for line in &lines {
                if let Ok(Line::Edge((_, _, weight))) = parser.line(line.as_bytes()) {
                    prop_assert!(weight >= 0.0 && weight.is_finite());
                }
            }
            let _ = parser.end();
        }
    }
}

#[test]
fn the_largest_vertex_is_named_in_an_error() {
    let (input, _) = read(&format!("p sp {} 0\n", u64::MAX), Format::Gr).unwrap();
    let error = input.vertex(0).unwrap_err();
    assert!(error.ends_with("they are 1 to 18446744073709551615"), "{error}");
}
