//! The exporter's side: [`Segment`], and how one is made.

mod builder;
mod grants;
mod segment;

pub use self::builder::Builder;
pub use self::segment::Segment;
