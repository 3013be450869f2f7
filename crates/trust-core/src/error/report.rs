//! [`PanicReport`]: a caught panic on its way to those who wait for its result.

use std::any::Any;
use std::fmt;

use fiber::{PanicPlace, panic_place_of};
use primitive::drop_payload;
use serde::{Deserialize, Serialize};

use crate::error::Panic;

/// A panic that was caught, as far as it can travel: its message, and its place in the source. A panic
/// that is resumed with a report as its payload is reported as that.
///
/// It prints as `MESSAGE, at FILE:LINE:COLUMN`.
///
/// Only panic hooks are told the place. A thread that joins a rack therefore sets a hook, once per process,
/// which notes the place and calls the hook that was there before, by default that of the standard
/// library. A program that sets a hook of its own in a rack keeps the places by calling the hook that it
/// replaces:
///
/// ```
/// use std::panic::{set_hook, take_hook};
///
/// let before = take_hook();
/// set_hook(Box::new(move |info| {
///     // ..
///     before(info);
/// }));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PanicReport {
    /// The panic's message, if it was a string.
    pub message: String,
    /// Where it was raised. `None` if a hook that the program has set later does not call the one that it
    /// replaced, or if the panic was resumed with a payload of its own.
    #[serde(with = "place")]
    pub place: Option<Box<PanicPlace>>,
}

impl PanicReport {
    /// The report of a caught panic, whose payload is freed. Its destructor is code of the user:
    /// call this where that may run.
    #[cold]
    pub(crate) fn taken(payload: Panic) -> Self {
        let report = Self::of(&*payload);
        drop_payload(payload);
        report
    }

    /// The report of a caught panic. To be called once, where it was caught: its place is known in that
    /// fiber only, and to the first who asks. A payload that a [`JoinError`](fiber::JoinError) has brought
    /// is resumed without its place, which the error has.
    pub fn of(payload: &(dyn Any + Send)) -> Self {
        let message = if let Some(text) = payload.downcast_ref::<&str>() {
            (*text).to_owned()
        } else if let Some(text) = payload.downcast_ref::<String>() {
            text.clone()
        } else if let Some(report) = payload.downcast_ref::<PanicReport>() {
            return report.clone();
        } else {
            "a panic whose payload is not a string".to_owned()
        };
        PanicReport { message, place: panic_place_of(payload) }
    }
}

impl fmt::Display for PanicReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.place.as_ref().map_or(Ok(()), |place| write!(f, ", at {place}"))
    }
}

/// A place as it travels, since the crate of fibers knows no serde.
mod place {
    use fiber::PanicPlace;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    type Place = Option<Box<PanicPlace>>;

    pub(super) fn serialize<S: Serializer>(place: &Place, to: S) -> Result<S::Ok, S::Error> {
        place.as_ref().map(|place| (&*place.file, place.line, place.column)).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Place, D::Error> {
        let place = Option::<(Box<str>, u32, u32)>::deserialize(from)?;
        Ok(place.map(|(file, line, column)| Box::new(PanicPlace { file, line, column })))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, resume_unwind};

    use transport_api::{HostId, ThreadId};

    use super::*;
    use crate::error::DelegateError;

    #[test]
    fn a_report_says_where_and_travels() {
        fiber::note_panics();
        let fall = || panic!("number {}", std::hint::black_box(7));
        let line = line!() - 1;
        let report = PanicReport::taken(catch_unwind(fall).unwrap_err());
        assert_eq!(report.to_string(), format!("number 7, at {}:{line}:23", file!()));
        let error = DelegateError::Panicked {
            trustee: ThreadId { host: HostId(1), thread: 2 },
            report: report.clone(),
        };
        assert!(error.to_string().ends_with(&format!("panicked on thread 2 of host 1: {report}")));
        let resumed = Box::new(report.clone());
        let resumed = catch_unwind(|| resume_unwind(resumed)).unwrap_err();
        assert_eq!(PanicReport::taken(resumed), report);
        let unknown = catch_unwind(|| resume_unwind(Box::new("text"))).unwrap_err();
        let unknown = PanicReport::taken(unknown);
        assert_eq!((&*unknown.to_string(), &unknown.place), ("text", &None));
        for report in [report, unknown] {
            let encoded = crate::codec::encode_to_vec(&report).unwrap();
            assert_eq!(crate::codec::decode::<PanicReport>(&encoded).unwrap(), report);
        }
    }
}
