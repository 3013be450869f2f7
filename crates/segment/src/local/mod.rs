//! The exporter's side: [`Segment`], its [`SegmentBuilder`], and typed views of its elements.

mod builder;
mod element;
mod grants;
mod segment;

pub use self::builder::SegmentBuilder;
pub use self::element::Element;
pub use self::segment::Segment;
