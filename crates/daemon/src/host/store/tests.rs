//! Stores in temporary directories, and what jobs may do to their files.

use rustix::process::{Resource, Rlimit};

use super::*;

fn program(content: &[u8]) -> Program {
    let digest = *blake3::hash(content).as_bytes();
    Program { digest, bytes: content.len() as u64, name: "p".into() }
}

fn put(store: &Store, content: &[u8]) -> PathBuf {
    let mut incoming = store.receive(&program(content)).unwrap();
    incoming.write(content).unwrap();
    incoming.finish().unwrap();
    store.path(&program(content))
}

fn store(limit: u64) -> (tempfile::TempDir, Store) {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(&place.path().join("store"), limit).unwrap();
    (place, store)
}

#[test]
fn what_was_stored_is_found_by_its_content() {
    let (_place, store) = store(1000);
    assert!(store.find(&program(b"one")).unwrap().is_none());
    let path = put(&store, b"one");
    assert!(is_program(&store.find(&program(b"one")).unwrap().unwrap(), &program(b"one")).unwrap());
    assert_eq!(fs::read(&path).unwrap(), b"one");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o500);
    let directory = fs::metadata(path.parent().unwrap()).unwrap();
    assert_eq!(directory.permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_program_that_was_changed_is_none() {
    type Change = fn(&Path);
    let changes: [Change; 5] = [
        |path| {
            fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
            fs::write(path, b"two").unwrap();
        },
        |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        },
        |path| {
            fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("/bin/sh", path).unwrap();
        },
        |path| {
            let file = store_file(path);
            file.set_len(7).unwrap();
        },
        |path| {
            fs::remove_file(path).unwrap();
            std::os::unix::net::UnixListener::bind(path).unwrap();
        },
    ];
    for change in changes {
        let (place, store) = store(1000);
        let path = put(&store, b"one");
        change(&path);
        assert!(store.find(&program(b"one")).unwrap().is_none());
        assert!(fs::symlink_metadata(&path).is_err(), "it is still in the way");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "it was set aside");
        put(&store, b"one");
        assert!(store.find(&program(b"one")).unwrap().is_some());
    }
}

#[test]
fn a_program_that_cannot_be_opened_for_want_of_descriptors_stays() {
    const NAME: &str =
        "host::store::tests::a_program_that_cannot_be_opened_for_want_of_descriptors_stays";
    if crate::own_process::runs_elsewhere(NAME) {
        return;
    }
    let (_place, store) = store(1000);
    let path = put(&store, b"one");
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum }).unwrap();
    let mut open = Vec::new();
    let error = loop {
        match File::open("/dev/null") {
            Ok(file) => open.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
    let found = store.find(&program(b"one"));
    drop(open);
    assert_eq!(found.unwrap_err().raw_os_error(), Some(Errno::MFILE.raw_os_error()));
    assert!(path.exists(), "a good program was set aside");
    assert!(store.find(&program(b"one")).unwrap().is_some());
}

#[test]
fn a_file_without_end_is_no_program() {
    // Its metadata says 0 bytes, and it is never read to its end.
    let endless = File::open("/dev/zero").unwrap();
    assert!(!is_program(&endless, &program(b"")).unwrap());
}

fn store_file(path: &Path) -> File {
    fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
    OpenOptions::new().write(true).open(path).unwrap()
}

#[test]
fn what_is_no_program_keeps_no_store_from_opening() {
    let (_place, store) = store(1000);
    put(&store, b"one");
    fs::create_dir_all(store.directory.join("x.part/y")).unwrap();
    fs::create_dir(store.directory.join("0".repeat(64))).unwrap();
    fs::write(store.directory.join("other"), b"").unwrap();
    let again = Store::open(&store.directory, 1000).unwrap();
    assert_eq!(fs::read_dir(&store.directory).unwrap().count(), 1);
    assert!(again.find(&program(b"one")).unwrap().is_some());
    fs::remove_dir_all(&store.directory).unwrap();
    fs::write(&store.directory, b"").unwrap();
    Store::open(&store.directory, 1000).unwrap();
}

#[test]
fn other_content_is_refused_and_leaves_nothing() {
    let (_place, store) = store(1000);
    let mut incoming = store.receive(&program(b"one")).unwrap();
    incoming.write(b"two").unwrap();
    assert!(matches!(incoming.finish(), Err(StoreError::OtherContent)));
    let mut incoming = store.receive(&program(b"one")).unwrap();
    assert!(matches!(incoming.write(b"three"), Err(StoreError::TooLarge(3))));
    drop(incoming);
    assert_eq!(fs::read_dir(&store.directory).unwrap().count(), 0);
    let huge = Program { bytes: u64::MAX, ..program(b"") };
    assert!(matches!(store.receive(&huge), Err(StoreError::TooLarge(_))));
}

#[test]
fn what_was_on_its_way_when_a_daemon_was_killed_is_removed() {
    let (_place, store) = store(1000);
    std::mem::forget(store.receive(&program(b"one")).unwrap());
    assert_eq!(fs::read_dir(&store.directory).unwrap().count(), 1);
    Store::open(&store.directory, 1000).unwrap();
    assert_eq!(fs::read_dir(&store.directory).unwrap().count(), 0);
}

#[test]
fn programs_may_be_stored_at_the_same_time_where_there_is_no_room() {
    let (_place, store) = store(0);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..50 {
                    put(store, format!("{number} {round}").as_bytes());
                }
            });
        }
    });
}

#[tokio::test]
async fn a_program_is_received_by_one_at_a_time() {
    let (_place, store) = store(1000);
    let one = program(b"one");
    let first = store.turn(&one).await;
    let _other = store.turn(&program(b"two")).await;
    let mut second = std::pin::pin!(store.turn(&one));
    tokio::select! {
        biased;
        _ = &mut second => panic!("it is another's turn"),
        () = std::future::ready(()) => {}
    }
    drop(first);
    drop(second.await);
    let _third = store.turn(&one).await;
    assert_eq!(store.turns.lock().len(), 2, "what is over is forgotten");
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let (_place, store) = store(3);
    for content in [b"one", b"two"] {
        let path = put(&store, content);
        let long_ago = SystemTime::UNIX_EPOCH;
        File::open(path).unwrap().set_modified(long_ago).unwrap();
    }
    assert!(store.find(&program(b"one")).unwrap().is_some(), "and is used");
    put(&store, b"six");
    assert!(store.find(&program(b"one")).unwrap().is_some());
    assert!(store.find(&program(b"two")).unwrap().is_none());
    assert!(store.find(&program(b"six")).unwrap().is_some());
}
