//! Every interleaving of an operation on mapped memory with a revocation: once the region is quiet,
//! nothing writes it. Run by `RUSTFLAGS="--cfg loom" cargo test --release --test 'loom_*'`.
#![cfg(loom)]

use gossamer_transport_api::{HostId, QuietPoints, RegionKey, Rights, Window};
use loom::sync::Arc;
use primitive::SharedBytes;
use primitive::sync::Ordering;

const TOKEN: u64 = 7;

/// What the owner leaves in a region that it knows to be quiet.
const OWNERS: u64 = 99;

struct Scene {
    quiet: QuietPoints,
    memory: SharedBytes,
    live: SharedBytes,
}

impl Scene {
    fn new() -> Arc<Scene> {
        let (memory, live) = (SharedBytes::heap(16), SharedBytes::heap(8));
        live.store(0, 1, Ordering::Relaxed);
        Arc::new(Scene { quiet: QuietPoints::new(1), memory, live })
    }

    fn window(&self) -> Window {
        let named = (RegionKey(1), Rights::ALL, 0);
        Window::new((0, HostId(0)), named, self.memory.clone(), self.live.clone())
    }

    /// An operation: refused, or as if no revocation were under way.
    fn write(&self) {
        let _ = self.window().write_from(0, &[1; 16]);
    }

    fn revoke_and_wait(&self) {
        self.live.store(0, 0, Ordering::Relaxed);
        self.quiet.begin(TOKEN);
        while self.quiet.reached() != [TOKEN] {
            loom::thread::yield_now();
        }
        self.memory.store(0, OWNERS, Ordering::Relaxed);
        self.memory.store(8, OWNERS, Ordering::Relaxed);
    }

    fn assert_untouched(&self) {
        let words = [0, 8].map(|at| self.memory.load(at, Ordering::Relaxed));
        assert_eq!(words, [OWNERS; 2], "written when it was quiet");
    }
}

#[test]
fn a_quiet_region_is_not_written() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let scene = Scene::new();
        scene.quiet.enter(0);
        let user = {
            let scene = scene.clone();
            loom::thread::spawn(move || {
                for _ in 0..2 {
                    scene.write();
                    scene.quiet.pass(0);
                }
                scene.write();
                // It stops polling, as a lane that is dropped does.
                scene.quiet.leave(0);
            })
        };
        scene.revoke_and_wait();
        user.join().unwrap();
        scene.assert_untouched();
    });
}

#[test]
fn a_thread_that_begins_meanwhile_is_waited_for_or_refused() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let scene = Scene::new();
        let user = {
            let scene = scene.clone();
            loom::thread::spawn(move || {
                scene.quiet.enter(0);
                scene.write();
                scene.quiet.leave(0);
            })
        };
        scene.revoke_and_wait();
        user.join().unwrap();
        scene.assert_untouched();
    });
}
