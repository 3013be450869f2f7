//! The exporter's side: [`Segment`] and its [`Builder`].

mod builder;
mod grants;
mod segment;

pub use self::builder::Builder;
pub use self::segment::Segment;
