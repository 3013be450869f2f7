//! Calls that no sender of this crate makes.

use jam_abi::code;

use super::*;
use crate::error::Refusal;

#[derive(Debug)]
struct Place;

crate::open! { Place = "inject-test.Place@1"; }

/// How a call of a jam that is not here ends, whose payload has elements of type `E`.
fn failure<E: Part>(payload: &[u8], local: u64) -> Failure {
    let more = More { payload: Payload::of_bytes(payload), code: None };
    let head = Value::new([1, 2, local]);
    let request = Request { head, args: Value::new(7_u64), more: Some(Box::new(more)) };
    match run::<Place, (), u64, E, u64>(&mut Place, &request) {
        Ok(_) => panic!("there is no such jam"),
        Err(failure) => failure,
    }
}

#[test]
fn a_payload_of_parts_of_elements_is_refused_before_any_code() {
    let refused = Failure::Refused(Refusal::Entry { code: code::PAYLOAD_LENGTH });
    for local in [0, LOCAL] {
        let not_here = failure::<u32>(&[1; 8], local);
        assert_ne!(not_here, refused, "two elements");
        assert_eq!(failure::<u32>(&[], local), not_here);
        assert_eq!(failure::<u32>(&[1; 7], local), refused);
        assert_eq!(failure::<()>(&[], local), not_here);
        assert_eq!(failure::<()>(&[1], local), refused);
    }
}
