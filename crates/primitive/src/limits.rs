//! Every capacity that two sides of the system must agree on, with its unit and its reason.
//!
//! Values marked *measured* were chosen on the delegation benchmark (`docs/performance.md`). Under
//! loom those of the slots shrink, so that a model wraps every counter and fills every buffer
//! within a few steps.

/// Bytes of a cache line on the machines we run on.
pub const CACHE_LINE: usize = 64;

/// Buffers per ordered (client, trustee) pair. With two, a client fills one while the trustee
/// serves the other; *measured*: one loses a quarter of the throughput, eight gain nothing.
pub const BUFFERS: usize = 2;

/// Bytes of one slot buffer that requests and replies may use, header included. It is address
/// space: pages that no batch ever reached are never touched.
pub const SLOT_BYTES: usize = if cfg!(loom) { 64 } else { 64 * 1024 };

/// Requests in one batch, at most, where memory is mapped; *measured* for 64 to 128 fibers, of which
/// some then queue while the others' requests are served. It is the room for completions that counts:
/// those of more than one word leave room for fewer. Elsewhere a batch takes longer to travel, and
/// [`BATCH_BYTES`] alone bounds it.
pub const BATCH_REQUESTS: usize = 42;

/// Bytes of requests in one batch, signal included, at most, so that long replies still find room
/// behind the requests.
pub const BATCH_BYTES: usize = if cfg!(loom) { 48 } else { 16 * 1024 };

/// Bytes from one buffer to the next. One cache line more than a power of two: headers of
/// different buffers then fall into different cache sets (63 headers: 35 ns instead of 162).
pub const SLOT_STRIDE: usize = SLOT_BYTES + CACHE_LINE;

/// Bytes of one encoded argument that travel inside a slot; larger ones take the bulk path of the
/// lane, as results do for which the slot has no room.
pub const INLINE_BYTES: usize = 8 * 1024;

/// Bytes of one argument or result, at most (1 GiB): what a length field may claim before it is
/// refused.
pub const MESSAGE_BYTES: usize = 1 << 30;

/// Bytes of bulk payloads that one thread's unanswered requests to another have, at most: a client
/// waits before it sends more, and a trustee gives up a host that does not. The largest message fits.
pub const BULK_REQUEST_BYTES: usize = MESSAGE_BYTES;

/// Bytes of bulk payloads that the replies to one batch have, at most: a trustee answers further
/// requests with an error. Several of the largest message fit, because a client cannot know the size
/// of the replies in advance.
pub const BULK_REPLY_BYTES: usize = 4 * MESSAGE_BYTES;

/// How deep values may be nested in an argument or a result. Encoding and decoding recurse, by about
/// 0.4 and 1.4 KiB of stack per level of a small enum in a debug build. Encoding runs on a fiber's
/// stack (128 KiB unless set otherwise: 1 KiB per level), decoding on a worker's (2 MiB: 16 KiB).
pub const NESTING: u32 = 128;

/// Clients above which a trustee looks at the compact arrival words instead of at every header.
/// Each header is in a page of its own, so that a sweep of very many waits for page tables;
/// *measured* with 63 idle clients.
pub const DIRECT_POLL_CLIENTS: usize = if cfg!(loom) { 1 } else { 16 };

/// Requests of one host to one other that the other has not answered yet, at most: imports and
/// revocations of the control plane. A host holds further requests back, so a peer that exceeds this
/// violates the protocol.
pub const PENDING_REQUESTS: usize = 4096;

/// Bytes of a region's descriptor that belong to the transport alone, at most: an address and a
/// remote key need 12.
pub const OPAQUE_BYTES: usize = 32;

/// Bytes of the text in which a host tells a peer why it gives it up, at most.
pub const REASON_BYTES: usize = 1000;

/// Threads of one host, at most.
pub const THREADS_PER_HOST: usize = 256;

/// Hosts of one rack, at most.
pub const HOSTS: usize = 256;

/// Launched closures that may wait for each other in one chain, at most: what a launch carries of
/// them, 12 bytes each, stays far below what travels inside a slot.
pub const LAUNCH_DEPTH: usize = 256;

/// Bytes of the name of a segment or a published trust, at most: what an entry of a registry has
/// room for in two cache lines.
pub const NAME_BYTES: usize = 64;

/// Names that a host publishes at a time, at most: slots of its registry, 512 KiB of address space of
/// which pages without entries are never touched.
pub const REGISTRY_SLOTS: usize = 4096;
