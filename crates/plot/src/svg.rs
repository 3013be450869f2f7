//! A minimal SVG writer. Text uses the viewer's fonts.

use std::fmt::Write;

/// Colours that colour-blind readers can distinguish (Okabe and Ito).
const COLOURS: [&str; 7] =
    ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#555555"];

/// The colour of series `index`.
pub fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// An SVG document on a white background; lengths are in pixels from the upper left corner.
///
/// ```
/// use gossamer_plot::svg::Svg;
/// let mut svg = Svg::new(100.0, 50.0);
/// svg.text(50.0, 25.0, "middle", 12, "a < b");
/// assert!(svg.finish().contains("a &lt; b"));
/// ```
#[derive(Clone, Debug)]
pub struct Svg(String);

impl Svg {
    /// An empty document.
    pub fn new(width: f64, height: f64) -> Self {
        let mut text = String::new();
        let _ = writeln!(
            text,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="sans-serif">"#
        );
        let _ = writeln!(text, r##"<rect width="100%" height="100%" fill="#ffffff"/>"##);
        Self(text)
    }

    /// A line of text of `size`; `anchor` (start, middle or end) is the part of it at `x`.
    pub fn text(&mut self, x: f64, y: f64, anchor: &str, size: u32, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            self.0,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-size="{size}">{text}</text>"#
        );
    }

    /// A filled rectangle, positioned by its upper left corner.
    pub fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str) {
        let _ = writeln!(
            self.0,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}"/>"#
        );
    }

    /// A line.
    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), stroke: &str) {
        let _ = writeln!(
            self.0,
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{stroke}"/>"#
        );
    }

    /// Connected line segments.
    pub fn polyline(&mut self, points: impl Iterator<Item = (f64, f64)>, stroke: &str) {
        let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.0,
            r#"<polyline points="{}" fill="none" stroke="{stroke}" stroke-width="2"/>"#,
            points.join(" ")
        );
    }

    /// The finished document.
    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}
