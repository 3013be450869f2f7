//! Authorities, cards and revocation in temporary directories.

use super::*;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[test]
fn a_rack_is_made_once() {
    let place = tempfile::tempdir().unwrap();
    let admin = init_rack(place.path(), &name("r"), Some((&name("a"), "127.0.0.1:1"))).unwrap();
    assert_eq!(admin.member, Member { rack: name("r"), role: Role::Admin, name: name("admin") });
    assert_eq!(admin.hosts.hosts[&name("a")], "127.0.0.1:1");
    let host = Identity::load(&place.path().join("a")).unwrap();
    assert_eq!(host.member.role, Role::Host);
    let again = init_rack(place.path(), &name("r"), Some((&name("a"), "127.0.0.1:1"))).unwrap_err();
    assert!(matches!(again, AuthorityError::Exists(_)));
}

#[test]
fn a_rack_that_was_not_finished_is_made_anew() {
    let place = tempfile::tempdir().unwrap();
    let authority = Authority::create(place.path(), &name("r")).unwrap();
    authority.make_member(&name("admin"), Role::Admin).unwrap();
    authority.note_host(&name("a"), "node1").unwrap();
    drop(authority);
    let admin = init_rack(place.path(), &name("r"), Some((&name("b"), "node2"))).unwrap();
    assert_eq!(admin.hosts.hosts.keys().collect::<Vec<_>>(), [&name("b")]);
    assert!(!place.path().join(UNFINISHED).exists());
    Authority::open(place.path()).unwrap().revoke(&name("b")).unwrap();
}

#[test]
fn a_rack_without_hosts_gets_them_later() {
    let place = tempfile::tempdir().unwrap();
    let admin = init_rack(place.path(), &name("r"), None).unwrap();
    assert!(admin.hosts.hosts.is_empty());
    let authority = Authority::open(place.path()).unwrap();
    assert_eq!(authority.note_host(&name("b"), "10.0.0.2").unwrap(), None);
    assert_eq!(authority.note_host(&name("b"), "10.0.0.2:7474").unwrap(), None);
    let admin = Identity::load(&place.path().join("admin")).unwrap();
    assert_eq!(admin.hosts.hosts[&name("b")], "10.0.0.2:7474");
}

#[test]
fn a_host_without_a_port_has_the_usual_one() {
    for (address, expected) in [
        ("node1", "node1:7474"),
        ("node1:1", "node1:1"),
        ("fd00::1", "[fd00::1]:7474"),
        ("[fd00::1]", "[fd00::1]:7474"),
        ("[fd00::1]:1", "[fd00::1]:1"),
    ] {
        assert_eq!(with_port(address), expected);
    }
    let place = tempfile::tempdir().unwrap();
    let admin = init_rack(place.path(), &name("r"), Some((&name("a"), "node1"))).unwrap();
    assert_eq!(admin.hosts.hosts[&name("a")], "node1:7474");
}

#[test]
fn a_newcomer_joins_without_giving_its_key_away() {
    let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let authority = Authority::create(place.path(), &name("r")).unwrap();
    let asked = request(other.path()).unwrap();
    assert!(!asked.contains("PRIVATE"));
    let card = authority.sign(&asked, &name("b"), Role::Viewer, good_for(1)).unwrap();
    let text = toml::to_string(&card).unwrap();
    let member = accept(other.path(), &toml::from_str(&text).unwrap()).unwrap();
    assert_eq!((member.name, member.role), (name("b"), Role::Viewer));
    assert_eq!(Identity::load(other.path()).unwrap().member.rack, name("r"));
}

#[test]
fn what_was_revoked_is_on_the_list_of_every_card_to_come() {
    let place = tempfile::tempdir().unwrap();
    init_rack(place.path(), &name("r"), Some((&name("a"), "127.0.0.1:1"))).unwrap();
    let authority = Authority::open(place.path()).unwrap();
    assert!(matches!(authority.revoke(&name("b")), Err(AuthorityError::NotSigned(_))));
    let asked = request(&place.path().join("b")).unwrap();
    let sign = || authority.sign(&asked, &name("b"), Role::Viewer, good_for(1)).unwrap();
    let (first, second) = (sign(), sign());
    assert_ne!(first.certificate, second.certificate, "each has a number of its own");
    assert_eq!(first.revoked, None);
    let (list, count) = authority.revoke(&name("b")).unwrap();
    assert_eq!((list, count), (place.path().join("ca/revoked.pem"), 2));
    assert_eq!(authority.revoke(&name("b")).unwrap().1, 0, "it was revoked before");
    assert!(sign().revoked.is_some(), "and it may be signed anew");
    assert!(Identity::load(&place.path().join("admin")).unwrap().revoked.is_some());
    authority.revoke(&name("a")).unwrap();
    assert!(authority.hosts().unwrap().hosts.is_empty(), "a revoked host is not listed");
}

#[test]
fn a_revocation_that_was_interrupted_can_be_repeated() {
    for file in ["ca/revoked.pem", "ca/signers.pem", "admin/revoked.pem", "admin/hosts.toml"] {
        let place = tempfile::tempdir().unwrap();
        init_rack(place.path(), &name("r"), Some((&name("b"), "node"))).unwrap();
        let authority = Authority::open(place.path()).unwrap();
        authority.make_member(&name("b"), Role::Signer).unwrap();
        // No file replaces a directory.
        let (file, aside) = (place.path().join(file), place.path().join("aside"));
        let was_there = fs::rename(&file, &aside).is_ok();
        fs::create_dir(&file).unwrap();
        authority.revoke(&name("b")).unwrap_err();
        fs::remove_dir(&file).unwrap();
        if was_there {
            fs::rename(&aside, &file).unwrap();
        }
        authority.revoke(&name("b")).unwrap();
        let lists = ["ca", "admin"].map(|member| get(&place.path().join(member).join(REVOKED)));
        let [list, copy] = lists.map(Result::unwrap);
        assert_eq!(list, copy, "{}", file.display());
        assert!(known_signers::read(&place.path().join("ca")).unwrap().is_empty());
        assert!(authority.hosts().unwrap().hosts.is_empty());
    }
}

#[test]
fn a_revocation_is_distributed_also_if_the_admin_was_moved_away() {
    let place = tempfile::tempdir().unwrap();
    init_rack(place.path(), &name("r"), None).unwrap();
    let authority = Authority::open(place.path()).unwrap();
    authority.make_member(&name("ann"), Role::Signer).unwrap();
    fs::rename(place.path().join("admin"), place.path().join("aside")).unwrap();
    authority.revoke(&name("ann")).unwrap_err();
    assert!(place.path().join("ca").join(REVOKED).exists());
    assert!(known_signers::read(&place.path().join("ca")).unwrap().is_empty());
}

#[test]
fn an_old_card_does_not_bring_an_old_list_back() {
    let place = tempfile::tempdir().unwrap();
    init_rack(place.path(), &name("r"), None).unwrap();
    let authority = Authority::open(place.path()).unwrap();
    let directory = place.path().join("b");
    let asked = request(&directory).unwrap();
    let sign_and_revoke = |who: &str| {
        authority.sign(&asked, &name(who), Role::Viewer, good_for(1)).unwrap();
        authority.revoke(&name(who)).unwrap();
        authority.sign(&asked, &name("b"), Role::Viewer, good_for(1)).unwrap()
    };
    let [old, new] = ["c", "d"].map(sign_and_revoke);
    let list = || fs::read_to_string(directory.join(REVOKED)).ok();
    accept(&directory, &old).unwrap();
    assert_eq!(list(), old.revoked);
    accept(&directory, &new).unwrap();
    assert_eq!(list(), new.revoked);
    accept(&directory, &old).unwrap();
    assert_eq!(list(), new.revoked, "the newer list stays");
    // What cannot be read is no reason to be without a list.
    fs::write(directory.join(REVOKED), "garbage").unwrap();
    accept(&directory, &old).unwrap();
    assert_eq!(list(), old.revoked);
}

#[test]
fn the_list_of_an_old_authority_goes_with_the_card_of_a_new_one() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [old, new] = [old.path(), new.path()].map(|place| {
        init_rack(place, &name("r"), None).unwrap();
        Authority::open(place).unwrap()
    });
    old.make_member(&name("ann"), Role::Viewer).unwrap();
    old.revoke(&name("ann")).unwrap();
    let place = tempfile::tempdir().unwrap();
    let asked = request(place.path()).unwrap();
    let card_of = |authority: &Authority| {
        authority.sign(&asked, &name("b"), Role::Host, good_for(1)).unwrap()
    };
    accept(place.path(), &card_of(&old)).unwrap();
    let list = place.path().join(REVOKED);
    assert!(list.exists());
    // One of this authority stays, also beside an old card without one.
    accept(place.path(), &Card { revoked: None, ..card_of(&old) }).unwrap();
    assert!(list.exists());
    accept(place.path(), &card_of(&new)).unwrap();
    assert!(!list.exists());
}

#[test]
fn what_is_signed_at_the_same_time_can_all_be_revoked() {
    let place = tempfile::tempdir().unwrap();
    init_rack(place.path(), &name("r"), None).unwrap();
    let asked = request(&place.path().join("b")).unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (place, asked) = (place.path(), &asked);
            scope.spawn(move || {
                let authority = Authority::open(place).unwrap();
                authority.sign(asked, &name("b"), Role::Viewer, good_for(1)).unwrap();
                authority.note_host(&name(&format!("h{number}")), "node").unwrap();
            });
        }
    });
    let authority = Authority::open(place.path()).unwrap();
    assert_eq!(authority.hosts().unwrap().hosts.len(), 8);
    assert_eq!(authority.revoke(&name("b")).unwrap().1, 8);
}

#[test]
fn a_card_for_another_key_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let authority = Authority::create(place.path(), &name("r")).unwrap();
    let (mine, theirs) = (place.path().join("mine"), place.path().join("theirs"));
    request(&mine).unwrap();
    let asked = request(&theirs).unwrap();
    let card = authority.sign(&asked, &name("b"), Role::Host, good_for(1)).unwrap();
    assert!(matches!(accept(&mine, &card), Err(AuthorityError::OtherKey(_))));
}

#[test]
fn a_request_that_was_tampered_with_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let authority = Authority::create(place.path(), &name("r")).unwrap();
    let asked = request(&place.path().join("b")).unwrap();
    let middle = asked.len() / 2;
    let flipped = if asked.as_bytes()[middle] == b'A' { "B" } else { "A" };
    let mut bad = asked.clone();
    bad.replace_range(middle..=middle, flipped);
    assert!(authority.sign(&bad, &name("b"), Role::Admin, good_for(1)).is_err());
}
