//! What a revoked signer costs: the others are verified as before.

use super::*;

/// Bob's certificate has the number 8, and the list names it.
fn with_bob_revoked() -> (Signers, Member, Member) {
    let mut authority = authority();
    let ann = authority.member("gossamer:lab/signer/ann", |_| ());
    let bob = authority.member("gossamer:lab/signer/bob", |params| {
        params.serial_number = Some(SerialNumber::from(vec![8]));
    });
    authority.revoke(8);
    (authority.signers(), ann, bob)
}

fn is_revoked(verified: Result<Signer, SignatureError>) -> bool {
    verified == Err(SignatureError::Revoked { name: "bob".into() })
}

#[test]
fn packages_of_a_revoked_signer_hold_up_no_other() {
    let (signers, ann, bob) = with_bob_revoked();
    let of_bob = bob.sign(None);
    for _ in 0..100 {
        assert!(is_revoked(verify(&signers, &of_bob)));
    }
    verify(&signers, &ann.sign(None)).expect("a first arrival of another signer");
}

#[test]
fn a_certificate_is_called_revoked_only_if_the_authority_has_signed_it() {
    let (signers, _, _) = with_bob_revoked();
    let foreign = authority().member("gossamer:lab/signer/bob", |params| {
        params.serial_number = Some(SerialNumber::from(vec![8]));
    });
    let signed = foreign.sign(None);
    for _ in 0..MAX_FAILURES {
        let error = verify(&signers, &signed).unwrap_err();
        assert!(matches!(error, SignatureError::Certificate { .. }), "{error}");
    }
    assert_eq!(verify(&signers, &signed), Err(SignatureError::TooMany), "each was a failure");
}

#[test]
fn what_a_process_holds_is_verified_after_any_number_of_failures() {
    let (signers, ann, bob) = with_bob_revoked();
    let held = |package: &[u8]| {
        let proof = Package::parse(package).unwrap().proof().unwrap();
        signers.verify_held(&Proof::parse(&proof).unwrap())
    };
    // The failures of a second that does not end.
    let mut recent = signers.recent.lock();
    recent.since = Some(Instant::now() + HOUR);
    recent.failures = MAX_FAILURES;
    drop(recent);
    let of_ann = ann.sign(None);
    assert_eq!(verify(&signers, &of_ann), Err(SignatureError::TooMany));
    for _ in 0..2 {
        assert!(is_revoked(held(&bob.sign(None))));
        assert_eq!(held(&of_ann).unwrap().name, "ann");
    }
    let other_job = SignatureError::OtherJob { signed_for: JobId(8), job: JobId(7) };
    assert_eq!(held(&ann.sign(Some(8))), Err(other_job));
    assert_eq!(signers.recent.lock().failures, MAX_FAILURES, "none was counted");
}

#[test]
fn revoked_certificates_that_are_remembered_have_a_limit() {
    let mut recent = Recent::default();
    for number in 0..2 * MAX_KNOWN_SIGNERS as u8 {
        recent.keep_revoked(&[number], "bob");
        recent.keep_revoked(&[number], "bob");
    }
    let remembered = (0..=u8::MAX).filter(|number| recent.revoked_name(&[*number]).is_some());
    assert_eq!(remembered.count(), MAX_KNOWN_SIGNERS);
    assert_eq!(recent.revoked_name(&[2 * MAX_KNOWN_SIGNERS as u8 - 1]), Some("bob"));
}
