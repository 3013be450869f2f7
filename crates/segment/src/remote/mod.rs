//! The importer's side: [`RemoteSegment`], and what is at a place in it.

mod element;
mod open;
mod record;
mod renewal;
mod segment;

pub use self::element::Element;
pub use self::open::OpenOptions;
pub use self::record::RemoteRecord;
pub use self::segment::{MAX_OPERATION, RemoteSegment};
