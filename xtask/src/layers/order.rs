//! The order of crates and, inside crates, of folders. These tables are what `cargo xtask layers`
//! checks.

/// The layers, lowest first. Crates of one line are neighbours and do not use each other.
pub(super) const LAYERS: &[&[&str]] = &[
    &["gossamer-deploy", "gossamer-fuzz-corpus", "gossamer-primitive", "gossamer-rdma-needs"],
    &["gossamer-transport-api"],
    &["gossamer-job", "gossamer-transport-control"],
    TRANSPORTS,
    &["gossamer-fiber"],
    &["gossamer-progress"],
    &["gossamer-trust-core"],
    &[PICKS_TRANSPORTS],
    &["gossamer-daemon", "gossamer-compile-fail", "gossamer-guest"],
    &["gossamer-chaos", "gossamer-kv"],
    &["xtask"],
];

/// The transports, which do not use each other.
pub(super) const TRANSPORTS: &[&str] =
    &["gossamer-transport-shm", "gossamer-transport-tcp", "gossamer-transport-rdma"];

/// A transport that stands on a carrier, and the carrier that its tests use.
pub(super) const TESTED_OVER: (&str, &str) = ("gossamer-transport-rdma", "gossamer-transport-tcp");

/// The one crate that selects transports.
pub(super) const PICKS_TRANSPORTS: &str = "gossamer";

/// The modules of a source folder, each a file or a folder there, lowest first. Modules of one line
/// do not use each other. `lib.rs`, `main.rs`, `mod.rs` (of the folder itself) and programs in `bin`
/// are above all of them; modules for tests only have no place.
///
/// `cargo xtask layers --order FOLDER` prints an order that the sources of a folder allow.
pub(super) const FOLDERS: &[(&str, &[&[&str]])] = &[
    (
        "crates/deploy/src",
        &[
            &["interrupt", "rack_file"],
            &["action", "namespaces", "scripts"],
            &["mode", "probe"],
            &["deployment"],
            &["local"],
        ],
    ),
    ("crates/transport-rdma/src/verbs", &[&["device"], &["cq", "pd"], &["mr"], &["qp"]]),
    (
        "tools/guest/src",
        &[&["apt", "archive", "watch"], &["kernel", "packages"], &["task"], &["qemu"], &["run"]],
    ),
    (
        "xtask/src",
        &[
            &["step", "times"],
            &["workspace"],
            &["deny", "fuzz", "layers", "programs", "subjects", "unsafety"],
            &["checks"],
            &["aarch64", "ledger", "netns", "rack_deploy", "rdma_vm"],
            &["deploy_test", "slurm"],
            &["bench", "rdma_test"],
            &["ci"],
        ],
    ),
];
