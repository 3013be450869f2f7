//! The importer's side: [`RemoteSegment`], and typed views of its elements and records.

mod element;
mod open;
mod record;
mod renewal;
mod segment;

pub use self::element::RemoteElement;
pub use self::open::OpenOptions;
pub use self::record::RemoteRecord;
pub use self::segment::{MAX_OPERATION, RemoteSegment};
