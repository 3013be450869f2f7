//! What goes wrong in delegated closures, and who learns of it.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use gossamer::{CodecStep, DelegateError, JoinError, PanicPlace, PanicReport, Trustee};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use trust_core::Chain;

use crate::support::{message_of, panic_in, wait_until};

fn others() -> Vec<Trustee> {
    let me = gossamer::local_trustee().trustee();
    gossamer::threads().filter(|trustee| *trustee != me).collect()
}

pub fn a_panic_reaches_the_caller_and_the_property_goes_on() {
    for trustee in gossamer::threads() {
        let list = trustee.entrust(vec![1u8]);
        let message = panic_in(|| {
            list.apply(|list| {
                list.push(2);
                assert!(list.is_empty(), "half way through");
            })
        });
        assert!(message.contains("half way through"), "{message}");
        assert_eq!(list.apply(|list| list.clone()), [1, 2], "as the closure left it: no poisoning");
    }
}

pub fn every_panic_of_a_batch_is_its_own() {
    for trustee in others() {
        let counter = trustee.entrust(0u32);
        let results = Rc::new(RefCell::new(Vec::new()));
        for i in 0..200u32 {
            let results = results.clone();
            let odd = |c: &mut u32, i: u32| {
                assert!(i.is_multiple_of(3), "{i} is refused, {}", "at length ".repeat(20));
                *c += 1;
                i
            };
            counter.try_apply_with_then(odd, i, move |result| {
                results.borrow_mut().push(result.map_err(|error| error.to_string()));
            });
        }
        assert_eq!(counter.apply(|c| *c), 67);
        for (i, result) in (0..200u32).zip(results.borrow().iter()) {
            match result {
                Ok(back) => assert_eq!((*back, i % 3), (i, 0)),
                Err(message) => assert!(i % 3 != 0 && message.contains(&format!("{i} is refused"))),
            }
        }
        assert_eq!(results.borrow().len(), 200);
    }
}

/// Formatted, so that each of its texts is bytes of its own.
fn fall_at(number: u32) -> ! {
    panic!("fell at {number}")
}

/// Waits when it is dropped, so that other fibers of its thread run.
struct Waits(Trustee);

impl Drop for Waits {
    fn drop(&mut self) {
        assert_eq!(self.0.visit(|| 3), 3);
    }
}

pub fn a_panic_of_a_closure_says_where_it_was() {
    let of = |error: DelegateError| match error {
        DelegateError::Panicked { report, .. } => report,
        other => panic!("{other:?}"),
    };
    let is_at = |place: &Option<Box<PanicPlace>>, line: u32| {
        let place = place.as_ref().expect("a place");
        assert_eq!((&*place.file, place.line), (file!(), line), "{place}");
    };
    for at in gossamer::threads() {
        let number = at.entrust(7u32);
        let (fell, line) = (number.try_apply(|n| -> u8 { panic!("has {n}") }), line!());
        let report = of(fell.unwrap_err());
        is_at(&report.place, line);
        assert!(report.to_string().starts_with(&format!("has 7, at {}:{line}:", file!())));
        // In a function that it calls; and where the standard library names the line that calls it.
        let report = of(number.try_apply(|n| -> u8 { fall_at(*n) }).unwrap_err());
        is_at(&report.place, line_of_fall_at());
        let (fell, line) = (number.try_apply(|n| [0u8; 3][*n as usize]), line!());
        is_at(&of(fell.unwrap_err()).place, line);
        let (fell, line) = (number.try_apply(|n| n.checked_sub(8).unwrap()), line!());
        is_at(&of(fell.unwrap_err()).place, line);
        // Caught in the closure, which goes on with a payload of its own; and with the same.
        let resumed = number.try_apply(|n| -> u8 {
            let caught = catch_unwind(|| fall_at(*n)).unwrap_err();
            resume_unwind(Box::new(message_of(&*caught)))
        });
        let report = of(resumed.unwrap_err());
        assert_eq!((&*report.message, report.place), ("fell at 7", None));
        let again =
            |n: &mut u32| -> u8 { resume_unwind(catch_unwind(|| fall_at(*n)).unwrap_err()) };
        is_at(&of(number.try_apply(again).unwrap_err()).place, line_of_fall_at());
        // A report is a payload, too, and keeps the place that it came with.
        let first = of(number.try_apply(|n| -> u8 { fall_at(*n) }).unwrap_err());
        let resume = |_: &mut u32, first: PanicReport| -> u8 { resume_unwind(Box::new(first)) };
        let second = of(number.try_apply_with(resume, first.clone()).unwrap_err());
        assert_eq!(second, first);
        // Of the closure that sees what another has found.
        let view = || number.apply_ref(|_| Some("text"), |_| fall_at(1));
        let caught = catch_unwind(AssertUnwindSafe(view)).unwrap_err();
        is_at(&PanicReport::of(&*caught).place, line_of_fall_at());
    }
}

fn line_of_fall_at() -> u32 {
    let fell = catch_unwind(|| fall_at(0)).unwrap_err();
    PanicReport::of(&*fell).place.expect("a place").line
}

pub fn a_panic_of_a_fiber_says_where_it_was() {
    let is_at = |error: JoinError, line: u32| {
        let said = error.to_string();
        assert!(said.contains(&format!(", at {}:{line}:", file!())), "{said}");
        let JoinError::Panicked { place: Some(place), .. } = &error else { panic!("{error:?}") };
        assert_eq!((&*place.file, place.line), (file!(), line), "{place}");
        assert_eq!(DelegateError::from(error).to_string(), said, "also as another error");
    };
    for at in gossamer::threads() {
        // While one unwinds, others of its thread panic, with the same literal.
        let fall = |at: Trustee| {
            let _waits = Waits(at);
            panic!("fell");
        };
        let line = line!() - 2;
        let other = gossamer::threads().find(|other| *other != at).expect("another thread");
        let fibers = [(); 5].map(|()| gossamer::spawn_on_with(at, fall, other));
        let (late, late_line) = (at.spawn(|| -> u8 { panic!("fell") }), line!());
        is_at(late.join().unwrap_err(), late_line);
        for fiber in fibers {
            let joined: Result<(), JoinError> = fiber.join();
            is_at(joined.unwrap_err(), line);
        }
    }
    let (local, line) = (gossamer::spawn(|| panic!("fell")), line!());
    is_at(local.join().unwrap_err(), line);
    let (blocking, line) = (gossamer::spawn_blocking(|| panic!("fell")), line!());
    is_at(blocking.join().unwrap_err(), line);
    let resumed = gossamer::spawn(|| resume_unwind(Box::new("fell"))).join();
    let resumed: JoinError = resumed.map(|never: ()| never).unwrap_err();
    assert!(matches!(&resumed, JoinError::Panicked { place: None, .. }), "{resumed:?}");
}

/// Views of fibers whose replies come together panic one after the other, before any of the fibers goes on.
pub fn panics_of_views_of_several_fibers_say_where_each_was() {
    for at in gossamer::threads() {
        let number = Rc::new(at.entrust(7u32));
        let of = |view: fn(Option<&str>)| {
            let number = number.clone();
            fiber::spawn_local(move || number.apply_ref(|_| Some("text"), view))
        };
        let line = line!();
        let fibers = [
            of(|_| panic!("fell")),
            of(|_| panic!("fell")),
            of(|text| panic!("fell over {}", text.unwrap())),
            of(|text| panic!("fell from {}", text.unwrap())),
        ];
        for (fiber, line) in fibers.into_iter().zip(line + 2..) {
            let error = fiber.join().unwrap_err();
            let JoinError::Panicked { place: Some(place), .. } = &error else {
                panic!("{error:?}")
            };
            assert_eq!((&*place.file, place.line), (file!(), line), "{error}");
        }
    }
}

pub fn waiting_in_a_delegated_closure_names_both_places() {
    let me = gossamer::local_trustee().trustee();
    for outer in gossamer::threads() {
        for inner in gossamer::threads() {
            let (outer, inner) = (outer.entrust(0u32), inner.entrust(7u32));
            let message = panic_in(|| {
                outer.apply_with(
                    |_, inner: gossamer::Trust<u32>| inner.apply(|value| *value),
                    inner.clone(),
                )
            });
            assert!(
                message.contains("`apply` at ") && message.contains("must not wait"),
                "{message}"
            );
            assert!(message.matches("panics").count() >= 2, "both places are named: {message}");
            assert_eq!((outer.apply(|o| *o), inner.apply(|i| *i)), (0, 7), "both go on");
        }
    }
    let latch = me.entrust_with(|()| gossamer::Latch::new(1u8), ());
    let counter = me.entrust(0u8);
    let message = panic_in(|| {
        counter.apply_with(
            |_, latch: gossamer::Trust<gossamer::Latch<u8>>| latch.launch(|value| *value),
            latch.clone(),
        )
    });
    assert!(message.contains("`launch` at ") && message.contains("panics.rs"), "{message}");
}

thread_local! {
    /// What the callbacks of this thread were called with.
    static RESULTS: RefCell<Vec<Result<u8, DelegateError>>> = const { RefCell::new(Vec::new()) };
}

fn note(result: Result<u8, DelegateError>) {
    RESULTS.with_borrow_mut(|results| results.push(result));
}

/// Waits until one callback has been called, and for others that must not be.
fn the_only_result() -> Result<u8, DelegateError> {
    wait_until("a callback", || RESULTS.with_borrow(|results| !results.is_empty()));
    gossamer::sleep(std::time::Duration::from_millis(2));
    let mut results = RESULTS.take();
    assert_eq!(results.len(), 1, "{results:?}");
    results.remove(0)
}

/// Fails in as many ways as a request can, on this thread and on others.
pub fn a_callback_for_failures_is_called_once() {
    let here = gossamer::local_trustee().entrust(());
    for trustee in gossamer::threads() {
        let is_here = trustee == gossamer::local_trustee().trustee();
        let unit = trustee.entrust(());
        let fall = |unit: &gossamer::Trust<()>| {
            unit.try_apply_then(|()| -> u8 { panic!("the closure fell over") }, note);
        };
        let is_panic = |result: Result<u8, DelegateError>| match result {
            Err(DelegateError::Panicked { trustee: at, report }) => {
                assert_eq!((at, &*report.message), (trustee.thread(), "the closure fell over"));
            }
            other => panic!("{other:?}"),
        };
        unit.try_apply_then(|()| 7, note);
        assert_eq!(the_only_result().unwrap(), 7);
        fall(&unit);
        is_panic(the_only_result());
        // In delegated context, where requests to the own thread are put off.
        here.apply_with(
            |(), unit: gossamer::Trust<()>| {
                unit.try_apply_then(|()| -> u8 { panic!("the closure fell over") }, note);
            },
            unit.clone(),
        );
        is_panic(the_only_result());
        for (value, expected) in [
            (Awkward::NotEncoded, "too awkward to encode"),
            (Awkward::EncodingPanics, "the value's own code panicked: encoding fell over"),
            (Awkward::NotDecoded, "too awkward to decode"),
            (Awkward::DecodingPanics, "decoding fell over"),
        ] {
            unit.try_apply_with_then(|(), _: Awkward| 3, value, note);
            match the_only_result() {
                Ok(value) => assert!(is_here && value == 3, "what stays here is not encoded"),
                Err(error) => assert!(Chain(&error).to_string().contains(expected), "{error:?}"),
            }
        }
        for (number, expected) in [
            (0, "too awkward to encode"),
            (1, "encoding fell over"),
            (2, "too awkward to decode"),
            (3, "the value's own code panicked: decoding fell over"),
        ] {
            let make = |(): &mut (), number: usize| {
                let all = [
                    Awkward::NotEncoded,
                    Awkward::EncodingPanics,
                    Awkward::NotDecoded,
                    Awkward::DecodingPanics,
                ];
                all.into_iter().nth(number).expect("one of them")
            };
            unit.try_apply_with_then(make, number, |result| note(result.map(|_| 3)));
            match the_only_result() {
                Ok(value) => assert!(is_here && value == 3, "what stays here is not encoded"),
                Err(error) => assert!(Chain(&error).to_string().contains(expected), "{error:?}"),
            }
        }
        assert_eq!(unit.apply(|()| 5), 5, "all goes on");
    }
}

/// A result whose destructor panics at the trustee, if `falls` is set.
#[derive(Serialize, Deserialize)]
struct Fragile {
    bytes: Vec<u8>,
    #[serde(skip)]
    falls: bool,
}

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(!self.falls, "{} bytes fell apart", self.bytes.len());
    }
}

pub fn a_result_whose_drop_panics_is_a_panic_of_its_own() {
    for trustee in others() {
        let maker = trustee.entrust(());
        let results = Rc::new(RefCell::new(Vec::new()));
        // In the place of the request, after the requests, by the bulk path.
        let lengths = [0, 3, 8, 200, 0, 90_000, 1, 200, 5, 90_000, 2].repeat(3);
        for (i, len) in lengths.iter().enumerate() {
            let (results, falls) = (results.clone(), i % 2 == 1);
            let make = |(): &mut (), (len, falls)| Fragile { bytes: vec![7; len], falls };
            maker.try_apply_with_then(make, (*len, falls), move |result| {
                let made = result.map(|fragile| fragile.bytes.len());
                results.borrow_mut().push(made.map_err(|error| error.to_string()));
            });
        }
        maker.apply(|()| ());
        assert_eq!(results.borrow().len(), lengths.len());
        for (i, (len, result)) in lengths.iter().zip(results.borrow().iter()).enumerate() {
            match result {
                Ok(made) => assert_eq!((made, i % 2), (len, 0)),
                Err(message) => {
                    assert!(message.contains(&format!("{len} bytes fell apart")), "{message}")
                }
            }
            assert_eq!(result.is_err(), i % 2 == 1, "number {i}");
        }
    }
}

/// Values whose encoding fails, or panics, where the tests say so.
#[derive(Debug, PartialEq)]
enum Awkward {
    Fine,
    NotEncoded,
    EncodingPanics,
    NotDecoded,
    DecodingPanics,
}

impl Serialize for Awkward {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Awkward::Fine => 0u8.serialize(serializer),
            Awkward::NotEncoded => Err(ser::Error::custom("too awkward to encode")),
            Awkward::EncodingPanics => panic!("encoding fell over"),
            Awkward::NotDecoded => 1u8.serialize(serializer),
            Awkward::DecodingPanics => 2u8.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Awkward {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u8::deserialize(deserializer)? {
            0 => Ok(Awkward::Fine),
            1 => Err(de::Error::custom("too awkward to decode")),
            _ => panic!("decoding fell over"),
        }
    }
}

pub fn values_that_cannot_be_encoded_or_decoded() {
    for trustee in others() {
        let unit = trustee.entrust(());
        let send = |value| unit.try_apply_with(|_, _: Awkward| (), value);
        assert!(send(Awkward::Fine).is_ok());
        let error = send(Awkward::NotEncoded).unwrap_err();
        let (here, there) = (gossamer::local_trustee().trustee().thread(), trustee.thread());
        assert!(here != there);
        let is = |error: &DelegateError, of_result: bool, expected_step, cause: &str| {
            let (step, type_name, at) = match error {
                DelegateError::BadArguments { step, type_name, trustee, .. } if !of_result => {
                    (step, type_name, trustee)
                }
                DelegateError::BadResult { step, type_name, trustee, .. } if of_result => {
                    (step, type_name, trustee)
                }
                other => panic!("{other:?}"),
            };
            assert_eq!((*step, *at), (expected_step, there), "{error:?}");
            assert!(type_name.ends_with("panics::Awkward"), "{error:?}");
            let (what, all) = (error.to_string(), Chain(error).to_string());
            assert!(what.contains(&format!("{step} the")) && what.contains("::Awkward`"), "{what}");
            assert!(what.ends_with(&there.to_string()), "the place: {what}");
            // A panic of the value's code has a place behind it.
            let (said, place) = all.split_once(&format!(", at {}:", file!())).unzip();
            assert_eq!(place.is_some(), cause.contains("panicked"), "{all}");
            let said = said.unwrap_or(&all);
            assert!(!what.contains(cause) && said.ends_with(cause), "one level: {what}; {all}");
        };
        is(&error, false, CodecStep::Encode, "too awkward to encode");
        let error = send(Awkward::NotDecoded).unwrap_err();
        is(&error, false, CodecStep::Decode, "too awkward to decode");
        let error = send(Awkward::DecodingPanics).unwrap_err();
        assert!(matches!(error, DelegateError::Panicked { .. }), "{error:?}");
        assert_eq!(panic_in(|| send(Awkward::EncodingPanics)), "encoding fell over");
        let error = unit.try_apply(|()| Awkward::NotEncoded).unwrap_err();
        is(&error, true, CodecStep::Encode, "too awkward to encode");
        let error = unit.try_apply(|()| Awkward::EncodingPanics).unwrap_err();
        assert!(matches!(error, DelegateError::Panicked { .. }), "{error:?}");
        let error = unit.try_apply(|()| Awkward::NotDecoded).unwrap_err();
        is(&error, true, CodecStep::Decode, "too awkward to decode");
        let error = unit.try_apply(|()| Awkward::DecodingPanics).unwrap_err();
        is(&error, true, CodecStep::Decode, "the value's own code panicked: decoding fell over");
        assert_eq!(unit.apply(|()| Awkward::Fine), Awkward::Fine);
    }
    let message = catch_unwind(|| panic!("{}", "ordinary"));
    assert_eq!(message_of(&*message.unwrap_err()), "ordinary");
    wait_until("nothing", || true);
}
