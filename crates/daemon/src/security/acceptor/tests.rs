//! What the files of an identity and of the revocation list must be, and when they are read again.

use daemon_protocol::Role;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

use super::*;
use crate::security::authority::{Authority, good_for, init_rack};
use crate::security::identity::{CA, CERTIFICATE, HOSTS, KEY};

/// A rack with a host and two lists of its authority, in the order in which they were signed.
struct Rack {
    place: TempDir,
    lists: Vec<Vec<u8>>,
}

impl Rack {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let host = "a".parse().unwrap();
        init_rack(place.path(), &"r".parse().unwrap(), Some((&host, "127.0.0.1"))).unwrap();
        let authority = Authority::open(place.path()).unwrap();
        let asked = crate::security::authority::request(&place.path().join("b")).unwrap();
        let revoke = |name: &str| {
            let name = name.parse().unwrap();
            authority.sign(&asked, &name, Role::Viewer, good_for(1)).unwrap();
            fs::read(authority.revoke(&name).unwrap().0).unwrap()
        };
        let lists = ["b", "c"].map(revoke).to_vec();
        fs::create_dir(place.path().join("state")).unwrap();
        Self { place, lists }
    }

    fn put(&self, list: &[u8]) {
        fs::write(self.place.path().join("a").join(REVOKED), list).unwrap();
    }

    /// The newer of its lists.
    fn newest(&self) -> List {
        self.put(&self.lists[1]);
        self.start().unwrap().newest.unwrap()
    }

    fn start(&self) -> Result<Acceptor, AcceptorError> {
        let directory = self.place.path().join("a");
        let identity = Identity::load(&directory).unwrap();
        Acceptor::new(identity, directory, &self.place.path().join("state"))
    }
}

/// What a job may put in place of a file. The pipe comes first: a daemon that reads it stops there,
/// before the endless ones.
const REPLACEMENTS: [fn(&Path); 4] = [
    |path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
    |path| fs::create_dir_all(path.join("inner")).unwrap(),
    |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
    |path| fs::File::create(path).unwrap().set_len(1 << 40).unwrap(),
];

#[test]
fn a_list_only_becomes_newer_also_after_a_restart() {
    let rack = Rack::new();
    let mut acceptor = rack.start().unwrap();
    assert_eq!(acceptor.newest, None);
    rack.put(&rack.lists[1]);
    acceptor.current();
    let newest = acceptor.newest.clone().unwrap();
    rack.put(&rack.lists[0]);
    let error = acceptor.read().unwrap_err();
    assert!(matches!(error, NotUsed::Older { .. }), "{error}");
    assert_eq!(acceptor.newest, Some(newest.clone()));
    // The next daemon finds only the older list, or none, beside its identity.
    let acceptor = rack.start().unwrap();
    assert_eq!(acceptor.newest, Some(newest.clone()));
    assert_eq!(acceptor.identity.revoked.as_ref(), Some(newest.der()));
    fs::remove_file(rack.place.path().join("a").join(REVOKED)).unwrap();
    assert_eq!(rack.start().unwrap().identity.revoked.as_ref(), Some(newest.der()));
}

#[test]
fn a_list_that_could_not_be_read_for_want_of_descriptors_is_read_later() {
    const NAME: &str = "security::acceptor::tests::a_list_that_could_not_be_read_for_want_of_descriptors_is_read_later";
    if crate::own_process::runs_elsewhere(NAME) {
        return;
    }
    let rack = Rack::new();
    let mut acceptor = rack.start().unwrap();
    acceptor.current();
    rack.put(&rack.lists[1]);
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum }).unwrap();
    let open: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
    acceptor.current();
    assert_eq!(acceptor.newest, None);
    drop(open);
    acceptor.current();
    assert!(acceptor.newest.is_some(), "the file is the same");
}

#[test]
fn certificates_of_signers_are_handed_on_as_they_change() {
    let rack = Rack::new();
    let mut acceptor = rack.start().unwrap();
    acceptor.current();
    let first = acceptor.signing();
    assert!(first.signers.is_empty());
    acceptor.current();
    assert!(Arc::ptr_eq(&first, &acceptor.signing()), "no process is told of no change");
    let authority = Authority::open(rack.place.path()).unwrap();
    authority.make_member(&"ann".parse().unwrap(), Role::Signer).unwrap();
    let (ca, own) = (rack.place.path().join("ca"), rack.place.path().join("a"));
    fs::copy(ca.join(SIGNERS), own.join(SIGNERS)).unwrap();
    acceptor.current();
    assert_eq!(acceptor.signing().signers, known_signers::read(&ca).unwrap());
    assert_eq!(acceptor.signing().signers.len(), 1);
    fs::remove_file(own.join(SIGNERS)).unwrap();
    acceptor.current();
    assert!(acceptor.signing().signers.is_empty());
}

#[test]
fn a_list_of_another_rack_is_refused_and_does_not_outlive_its_rack() {
    let (rack, other) = (Rack::new(), Rack::new());
    rack.put(&other.lists[0]);
    let refused = rack.start().err().unwrap().to_string();
    assert!(refused.ends_with("is not signed by this rack's authority"), "{refused}");
    // The rack was made again with another authority: the kept list of the earlier authority is
    // not used, although its number is higher.
    let newest_file = rack.place.path().join("state").join(NEWEST);
    let theirs = other.newest();
    fs::write(&newest_file, theirs.der()).unwrap();
    rack.put(&rack.lists[0]);
    let acceptor = rack.start().unwrap();
    let newest = acceptor.newest.unwrap();
    assert!(newest.is_older_than(&theirs), "{newest} and {theirs}");
    assert_eq!(fs::read(&newest_file).unwrap(), newest.der().as_ref());
}

#[test]
fn no_file_beside_the_identity_holds_the_daemon_up() {
    for replace in REPLACEMENTS {
        let rack = Rack::new();
        let authority = Authority::open(rack.place.path()).unwrap();
        authority.make_member(&"ann".parse().unwrap(), Role::Signer).unwrap();
        let (ca, own) = (rack.place.path().join("ca"), rack.place.path().join("a"));
        fs::copy(ca.join(SIGNERS), own.join(SIGNERS)).unwrap();
        rack.put(&rack.lists[1]);
        let mut acceptor = rack.start().unwrap();
        let before = acceptor.newest.clone();
        for name in [REVOKED, SIGNERS] {
            fs::remove_file(own.join(name)).unwrap();
            replace(&own.join(name));
        }
        acceptor.current();
        // The list stays in force; the signers are verified when they sign.
        assert_eq!(acceptor.newest, before);
        assert!(acceptor.signing().signers.is_empty());
        // A daemon that starts reads all of them, and says which one it cannot use.
        for name in [REVOKED, HOSTS, CA, KEY, CERTIFICATE] {
            let file = own.join(name);
            if name != REVOKED {
                fs::rename(&file, own.join("aside")).or_else(ignore_missing).unwrap();
                replace(&file);
            }
            let error = Identity::load(&own).unwrap_err();
            let IdentityError::File { path, .. } = &error else { panic!("{name}: {error}") };
            assert_eq!(*path, file);
            fs::remove_dir_all(&file).or_else(|_| fs::remove_file(&file)).unwrap();
            fs::rename(own.join("aside"), &file).or_else(ignore_missing).unwrap();
        }
    }
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[test]
fn whatever_replaces_the_kept_list_is_set_aside_or_ignored() {
    let rack = Rack::new();
    let newest = rack.newest();
    let newest_file = rack.place.path().join("state").join(NEWEST);
    for replace in REPLACEMENTS {
        fs::remove_file(&newest_file).unwrap();
        replace(&newest_file);
        assert_eq!(rack.start().unwrap().newest, Some(newest.clone()));
        assert_eq!(fs::read(&newest_file).unwrap(), newest.der().as_ref());
    }
    // Also while a daemon runs.
    rack.put(&rack.lists[0]);
    fs::remove_file(&newest_file).unwrap();
    let mut acceptor = rack.start().unwrap();
    fs::remove_file(&newest_file).unwrap();
    fs::create_dir(&newest_file).unwrap();
    rack.put(&rack.lists[1]);
    acceptor.current();
    assert_eq!(fs::read(&newest_file).unwrap(), newest.der().as_ref());
}
