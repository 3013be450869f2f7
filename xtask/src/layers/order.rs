//! The order of crates and, inside crates, of folders. These tables are what `cargo xtask layers`
//! checks.

/// The layers, lowest first. Crates of one line are neighbours and do not use each other.
pub(super) const LAYERS: &[&[&str]] = &[
    &[
        "gossamer-cases",
        "gossamer-deploy",
        "gossamer-fuzz-corpus",
        "gossamer-jam-abi",
        "gossamer-plot",
        "gossamer-primitive",
        "gossamer-rdma-needs",
    ],
    &["gossamer-jam-format", "gossamer-ried"],
    &["gossamer-jam-build"],
    &["gossamer-transport-api"],
    &["gossamer-job", "gossamer-rdma-protocol", "gossamer-transport-control"],
    &["gossamer-daemon-protocol"],
    TRANSPORTS,
    &["gossamer-fiber"],
    &["gossamer-progress"],
    &["gossamer-segment", "gossamer-trust-core"],
    &["gossamer-kv-store", "gossamer-mailbox"],
    &["gossamer-jam"],
    &["gossamer-jam-executor"],
    &[PICKS_TRANSPORTS],
    &[
        "gossamer-compile-fail",
        "gossamer-daemon",
        "gossamer-guest",
        "gossamer-jam-tests",
        "gossamer-rack-tests",
    ],
    &[MEASURES, "gossamer-chaos", "gossamer-graph", "gossamer-kv"],
    &["xtask"],
];

/// The transports, which do not use each other.
pub(super) const TRANSPORTS: &[&str] =
    &["gossamer-transport-shm", "gossamer-transport-tcp", "gossamer-transport-rdma"];

/// A transport that stands on a carrier, and the carrier that its tests use.
pub(super) const TESTED_OVER: (&str, &str) = ("gossamer-transport-rdma", "gossamer-transport-tcp");

/// The one crate that selects transports.
pub(super) const PICKS_TRANSPORTS: &str = "gossamer-rack";

/// The crate that measures layers, transports among them, each by itself.
pub(super) const MEASURES: &str = "bench-kit";

/// The crate that builds jams, and the one whose program builds them for users.
pub(super) const BUILDS_JAMS: (&str, &str) = ("gossamer-jam-build", "gossamer-daemon");

/// The modules of a source folder, each a file or a folder there, lowest first. Modules of one line
/// do not use each other. `lib.rs`, `main.rs`, `mod.rs` (of the folder itself) and programs in `bin`
/// are above all of them; modules for tests only have no place.
///
/// `cargo xtask layers --order FOLDER` prints an order that the sources of a folder allow.
pub(super) const FOLDERS: &[(&str, &[&[&str]])] = &[
    ("crates/apps/chaos/src", &[&["plan", "procfs"], &["rack", "report"], &["round"]]),
    (
        "crates/apps/graph/src",
        &[
            &["exchange", "layout", "random", "statistics"],
            &["kronecker", "memory"],
            &["graph", "read"],
            &["bfs", "components", "pagerank", "sssp", "validate"],
            &["graph500", "questions"],
        ],
    ),
    ("crates/apps/kv-store/src", &[&["store"], &["memcached"]]),
    ("crates/apps/kv/src", &[&["fibers", "ycsb"], &["bench", "server"]]),
    (
        "crates/daemon/src",
        &[
            &["causes", "connection", "escape", "files"],
            &["quarantine"],
            &["security"],
            &["controller", "process"],
            &["host"],
            &["cli"],
        ],
    ),
    (
        "crates/daemon-protocol/src",
        &[
            &["frame", "member", "topology"],
            &["process", "request"],
            &["answer", "session"],
            &["fuzzing"],
        ],
    ),
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
    (
        "crates/fiber/src",
        &[
            &["abort", "limits", "oneshot", "panic_place", "signal", "stack"],
            &["error", "switch"],
            &["core"],
            &["local", "overflow", "unparker"],
            &["ops"],
            &["wait"],
            &["drive", "waiter"],
            &["join", "once", "select", "time"],
            &["join_timeout", "spawn", "thread_local"],
            &["remote"],
            &["scheduler", "scope"],
        ],
    ),
    (
        "crates/fiber/src/core",
        &[
            &["builder", "locals", "queue", "timer"],
            &["block"],
            &["asking", "current", "inbox"],
            &["panics"],
            &["run", "teardown"],
            &["waking"],
        ],
    ),
    ("crates/fiber/src/switch", &[&["asan", "portable"], &["x86_64"]]),
    (
        "crates/mailbox/src",
        &[
            &["layout", "number", "sleep", "wait"],
            &["frame", "target"],
            &["claim", "error", "incoming", "outgoing"],
            &["flags", "fuzzing", "peer_flags"],
            &["active", "sender"],
            &["open", "senders"],
            &["view"],
            &["receiver"],
            &["builder"],
        ],
    ),
    ("crates/progress/src", &[&["owner", "tokens", "watched"], &["progress"], &["operation"]]),
    (
        "crates/segment/src/engine",
        &[
            &["flow_control", "known"],
            &["engine"],
            &["arrivals", "notifying", "transfer"],
            &["attach"],
            &["server"],
        ],
    ),
    ("crates/segment/src/local", &[&["grants"], &["segment"], &["builder", "element"]]),
    ("crates/segment/src/map", &[&["layout"], &["owner", "reader"]]),
    ("crates/segment/src/record", &[&["layout"], &["reader", "writer"]]),
    (
        "crates/trust-core/src",
        &[
            &["error", "wire"],
            &["codec"],
            &["closure"],
            &["client", "trustee"],
            &["node"],
            &["api"],
        ],
    ),
    (
        "crates/trust-core/src/api",
        &[
            &["callback", "delegate", "may_wait", "plain_call", "remote_fiber"],
            &["apply", "own", "ref_callback"],
            &["apply_ref", "call", "flush", "trustee", "updates"],
            &["latch_report", "prefetch", "trust"],
            &["holders", "lend"],
            &["latch"],
            &["launched"],
            &["launching"],
            &[
                "condvar",
                "deferred",
                "entrust",
                "launch",
                "launch_guard",
                "launch_shared",
                "spawn",
                "visit",
            ],
            &["future", "reply"],
            &["timed"],
        ],
    ),
    (
        "crates/trust-core/src/client",
        &[
            &["outcome"],
            &["completion", "request"],
            &["completion_list", "waiter"],
            &["run"],
            &["outbox", "plain_completion", "viewing"],
            &["backlog", "replies", "runs"],
        ],
    ),
    (
        "crates/trust-core/src/closure",
        &[
            &["capture", "noref", "plain_bytes"],
            &["batch", "invoke"],
            &["ahead", "plain_run", "registry"],
            &["call", "context", "identity", "plain_call"],
            &["lent"],
        ],
    ),
    (
        "crates/trust-core/src/codec",
        &[
            &["as_view", "blocks", "fault", "format", "plain", "portable", "spill", "text"],
            &["lend", "trusts"],
            &["encoded", "undelivered"],
            &["decode", "encode", "in_buffer"],
            &["entries"],
        ],
    ),
    ("crates/trust-core/src/codec/decode", &[&["decoder"], &["parts"]]),
    ("crates/trust-core/src/codec/encode", &[&["encoder"], &["parts"]]),
    (
        "crates/trust-core/src/node",
        &[
            &["awaited", "collected", "deferred", "idle", "kind", "outboxes", "turn"],
            &["callers"],
            &["state"],
            &["entered"],
            &["awaits"],
            &["inline", "poll", "send"],
            &["request"],
            &["chain", "racks", "system"],
            &["later", "wiring"],
        ],
    ),
    ("crates/trust-core/src/trustee", &[&["count"], &["property"], &["inbox"], &["inboxes"]]),
    (
        "crates/trust-core/src/wire",
        &[
            &["copy", "integrity", "traffic", "words"],
            &["arrivals", "bulk", "slot"],
            &["expected", "link"],
        ],
    ),
    (
        "crates/gossamer/src",
        &[
            &[
                "barrier",
                "blocking",
                "board",
                "children",
                "error",
                "losses",
                "mixed",
                "policy",
                "processors",
                "publications",
                "topology",
                "watcher",
            ],
            &["arguments", "cause", "packages", "unencrypted"],
            &["rack"],
            &["shared", "start"],
            &["files"],
            &["readiness", "reporter", "stalls", "worker"],
            &["end", "handle", "hosts", "publish", "segments"],
            &["placement", "run", "sharded", "sync", "team"],
            &["all_shards", "records", "scatter"],
        ],
    ),
    (
        "crates/gossamer/src/sync",
        &[&["error", "measure", "notify"], &["queue"], &["channel"], &["iter", "next"]],
    ),
    ("crates/gossamer/src/team", &[&["error", "inbox"], &["collectives"]]),
    (
        "crates/jam-abi/src",
        &[
            &["panicking", "signature"],
            &["types"],
            &["references"],
            &["call", "declare", "import", "scratch"],
            &["entry", "ried"],
            &["local"],
        ],
    ),
    (
        "crates/jam-build/src",
        &[
            &["c_types", "elf", "error", "lines"],
            &["depfile"],
            &["compile", "objects", "source"],
            &["disassemble", "records"],
            &["library", "link"],
            &["c_local", "ried"],
            &["c_ried", "generate"],
            &["folder"],
            &["builder"],
            &["script"],
        ],
    ),
    ("crates/jam-build/src/link", &[&["machines"], &["reach"], &["layout"], &["relocate"]]),
    (
        "crates/jam-executor/src",
        &[
            &["error", "layout", "memory"],
            &["stub"],
            &["code", "filter"],
            &["claims", "image"],
            &["fuzzing", "process"],
            &["running"],
            &["executor"],
            &["builder"],
        ],
    ),
    (
        "crates/jam-format/src",
        &[
            &["digest", "machine"],
            &["blob", "library"],
            &["package_error"],
            &["table"],
            &["types"],
            &["package"],
            &["signature"],
            &["fuzzing"],
        ],
    ),
    ("crates/jam-format/src/blob", &[&["error"], &["parse"], &["write"]]),
    (
        "crates/jam/src",
        &[
            &["error", "features", "log", "package", "plain_bytes", "reuse"],
            &["arena", "enter", "policy", "sender", "shape"],
            &["audit", "frame", "loaded"],
            &["arrived", "symbols"],
            &["link", "ried"],
            &["handles"],
            &["cache", "local"],
            &["receiver"],
            &["inject", "load", "send"],
            &["mailbox"],
        ],
    ),
    (
        "crates/job/src",
        &[
            &["environment", "id", "secret"],
            &["signers"],
            &["authority", "description", "packages", "statistics", "tls"],
            &["slurm"],
        ],
    ),
    ("crates/plot/src", &[&["file", "svg"], &["chart"]]),
    (
        "crates/rdma-protocol/src",
        &[&["address", "immediate"], &["message", "payloads"], &["fuzzing"]],
    ),
    ("crates/ried/src", &[&["host"], &["border"], &["start"], &["interface"]]),
    (
        "crates/transport-control/src",
        &[
            &["export_guard", "violation"],
            &["message"],
            &["config"],
            &["output"],
            &["control", "requester"],
            &["testing"],
            &["fuzzing"],
        ],
    ),
    (
        "crates/transport-rdma/src",
        &[
            &["config", "error", "verbs"],
            &["memory"],
            &["qp"],
            &["control"],
            &["lane"],
            &["transport"],
        ],
    ),
    (
        "crates/transport-rdma/src/control",
        &[
            &["device_selection", "exports", "imports", "revocations", "sleep_flags"],
            &["medium"],
            &["host"],
            &["join", "progress", "regions"],
            &["service"],
        ],
    ),
    ("crates/transport-rdma/src/lane", &[&["local", "parker", "remote"]]),
    ("crates/transport-rdma/src/memory", &[&["pages", "remote"], &["pool"]]),
    ("crates/transport-rdma/src/qp", &[&["ring"], &["send_queue"], &["connection"], &["thread"]]),
    (
        "crates/transport-rdma/src/verbs",
        &[&["posted", "work"], &["device"], &["cq", "pd"], &["mr"], &["qp"]],
    ),
    (
        "crates/transport-shm/src",
        &[
            &["wire"],
            &["fuzzing", "memory"],
            &["control"],
            &["data"],
            &["transport"],
            &["handshake"],
        ],
    ),
    (
        "crates/transport-tcp/src",
        &[
            &["config", "error", "export", "wire"],
            &["machine", "plane", "service_queue"],
            &["conn", "join", "readiness"],
            &["fuzzing", "host"],
            &["lane"],
            &["control"],
            &["service"],
            &["tcp"],
        ],
    ),
    (
        "tools/guest/src",
        &[&["apt", "archive", "watch"], &["kernel", "packages"], &["task"], &["qemu"], &["run"]],
    ),
    (
        "xtask/src",
        &[
            &["step", "times"],
            &["workspace"],
            &["background", "deny", "fuzz", "layers", "package", "pages"],
            &["programs", "subjects", "unsafety"],
            &["aarch64"],
            &["checks"],
            &["ledger", "netns", "rack_deploy", "rdma_vm"],
            &["deploy_test", "slurm"],
            &["bench", "rdma_test"],
            &["ahead"],
            &["ci"],
        ],
    ),
    ("xtask/src/checks", &[&["features", "levels"], &["hotpath", "lint", "models", "suites"]]),
];
