//! The importer's side: [`RemoteSegment`], and typed views of its elements and records.

mod atomics;
mod element;
mod open;
mod read;
mod record;
mod renewal;
mod segment;
mod unmapped;
mod write;

pub use self::element::RemoteElement;
pub use self::open::OpenOptions;
pub use self::record::RemoteRecord;
pub use self::segment::RemoteSegment;
pub use self::write::MAX_OPERATION;
