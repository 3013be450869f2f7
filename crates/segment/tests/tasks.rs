//! Tasks of an async runtime with one thread use segments; no operation may block that thread.

use std::sync::Arc;
use std::time::Duration;

use gossamer_segment::{Access, HostId, Rights, SegmentError, Segments};
use transport_api::Transport;
use transport_shm::ShmTransport;

fn hosts() -> [Segments; 2] {
    let hosts = ShmTransport::in_process(2, 1).expect("a rack");
    let segments = |host: &Arc<ShmTransport>| Segments::new(host.clone() as Arc<dyn Transport>);
    [segments(&hosts[0]), segments(&hosts[1])]
}

fn run<R>(task: impl Future<Output = R>) -> R {
    let builder = || tokio::runtime::Builder::new_current_thread().enable_time().build();
    // What would hang fails.
    let task = async { tokio::time::timeout(Duration::from_secs(60), task).await };
    builder().expect("a runtime").block_on(task).expect("an end within a minute")
}

#[test]
fn an_operation_that_waits_does_not_block_the_thread() {
    let [owner, user] = hosts();
    let _servers = [owner.serve(0).expect("served"), user.serve(0).expect("served")];
    run(async {
        // It waits for a name that a task of the same thread publishes later.
        let wait = user.options().timeout(Duration::from_secs(3600)).open_async("later");
        tokio::task::yield_now().await;
        let segment = owner.builder("later").len(1 << 20).export_async().await.expect("a segment");
        let later = wait.await.expect("opened");

        later.at::<u64>(1).write_async(70).await.expect("a write");
        later.at::<u64>(2).write_notify_async(71).await.expect("a write");
        later.fence_async().await.expect("a fence");
        assert_eq!(segment.at::<u64>(1).read().expect("a word"), 70);
        let notification = segment.notified().expect("it was notified");
        assert_eq!((notification.from, notification.offset, notification.len), (HostId(1), 16, 8));
        assert_eq!(later.at::<u64>(1).read_async().await.expect("a read"), 70);
        assert_eq!(later.compare_swap_async(8, 70, 75).await.expect("a swap"), 70);
        assert_eq!(later.fetch_add_async(8, 5).await.expect("an addition"), 75);

        // Several operations in flight at once, each with its own buffer.
        let block = |n: u8| vec![n; 100_000];
        let writes = [1, 2, 3].map(|n| later.write_async(usize::from(n) << 17, block(n)));
        for write in writes {
            write.await.expect("a write");
        }
        later.fence_async().await.expect("a fence");
        let reads = [1, 2, 3].map(|n: u8| (n, later.read_async(usize::from(n) << 17, 100_000)));
        for (n, read) in reads {
            assert_eq!(read.await.expect("a read"), block(n));
        }

        // A dropped operation is still carried out.
        drop(later.fetch_add_async(0, 1));
        later.fence_async().await.expect("a fence");
        assert_eq!(later.fetch_add_async(0, 1).await.expect("an addition"), 1);

        segment.revoke_async().await.expect("revoked");
        let late = later.read_async(0, 1).await.expect_err("it was revoked");
        assert!(matches!(late, SegmentError::Revoked { .. }), "{late}");
    });
}

/// One thread serves both: an operation that waits does not hold up the ones that it waits for.
#[test]
fn an_operation_that_waits_does_not_hold_up_others() {
    let [host, _] = hosts();
    let server = host.serve(0).expect("served");
    let wait = |name| host.options().timeout(Duration::from_secs(3600)).open_async(name);
    run(async {
        let waits = [1, 2, 3].map(|_| wait("later"));
        let _never = wait("never");
        let outside = std::thread::spawn({
            let host = host.clone();
            move || host.builder("later").len(64).export().expect("a segment")
        });
        for wait in waits {
            let later = wait.await.expect("opened");
            assert_eq!(later.fetch_add_async(0, 1).await.expect("an addition") / 3, 0);
        }
        let segment = outside.join().expect("no panic");
        assert_eq!(segment.at::<u64>(0).read().expect("a word"), 3);
    });
    drop(server);
}

#[test]
fn errors_reach_the_task() {
    let [owner, user] = hosts();
    let unserved = run(user.open_async("words")).expect_err("no thread works for it");
    assert!(matches!(unserved, SegmentError::NotAttached), "{unserved}");
    let _server = owner.serve(0).expect("served");
    let server = user.serve(0).expect("served");
    run(async {
        let access = Access::all(Rights::READ);
        let builder = owner.builder("words").len(64).access(access);
        let _segment = builder.export_async().await.expect("a segment");
        let taken = owner.builder("words").len(64).export_async().await.expect_err("two of them");
        assert!(matches!(taken, SegmentError::NameTaken(_)), "{taken}");
        let invalid = user.open_async("not a name").await.expect_err("no name");
        assert!(matches!(invalid, SegmentError::InvalidName(_)), "{invalid}");
        let words = user.open_async("words").await.expect("opened");
        let outside = words.read_async(8, usize::MAX).await.expect_err("too much");
        assert!(matches!(outside, SegmentError::OutOfBounds { .. }), "{outside}");
        let refused = words.write_async(0, [1]).await.expect_err("not allowed");
        assert!(matches!(refused, SegmentError::Rights { .. }), "{refused}");
        let misaligned = words.at_byte::<u64>(4).read_async().await.expect_err("misaligned");
        assert!(matches!(misaligned, SegmentError::Misaligned { .. }), "{misaligned}");
        // An operation in flight when the threads end that carry out operations.
        let wait = user.options().timeout(Duration::from_secs(3600)).open_async("never");
        drop(server);
        let ended = wait.await.expect_err("nothing carries it out");
        assert!(matches!(ended, SegmentError::RackEnded), "{ended}");
        let late = words.read_async(0, 1).await.expect_err("nothing carries it out");
        assert!(matches!(late, SegmentError::RackEnded), "{late}");
    });
}
