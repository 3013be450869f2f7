//! The same scripts to memcached itself and to `kv serve`: the responses must be the same.
//!
//! memcached is not part of the build, so the test is ignored by default; if run, a missing memcached
//! is a failure. Responses were made to match version 1.6.18, Debian 12's `memcached`.
//!
//! A script is one connection's input. Unique numbers are compared by which of them are the same,
//! since the servers count differently; `{cas}` in a script is the last one that the server has
//! returned. `kv serve` has one shard, because shards count by themselves.

mod common;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::Server;

const TIMEOUT: Duration = Duration::from_secs(20);

/// memcached on a free port; killed when dropped.
struct Memcached {
    process: Child,
    port: u16,
}

impl Memcached {
    fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        // -X and -W: without dumps and watchers, as `kv serve`.
        let mut process = Command::new("memcached")
            .args(["-u", "root", "-l", "127.0.0.1", "-U", "0", "-t", "1", "-X", "-W"])
            .args(["-p", &port.to_string()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run memcached (Debian: memcached): {error}"));
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = process.try_wait().unwrap();
            assert!(ended.is_none() && start.elapsed() < TIMEOUT, "memcached: {ended:?}");
            thread::sleep(Duration::from_millis(5));
        }
        Self { process, port }
    }

    /// It says that its crawler is disabled before that has ended, and then answers as if it was not.
    fn await_end_of_crawler(&self) {
        let (start, mut session) = (Instant::now(), Session::new(self.port));
        while !session.ask("stats settings\r\n").contains("STAT lru_crawler no") {
            assert!(start.elapsed() < Duration::from_secs(20), "its crawler does not end");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection, which sends one line at a time and so knows which response is whose.
struct Session {
    stream: TcpStream,
    /// Unique numbers of the script, each once.
    seen: Vec<u64>,
    last_cas: u64,
}

impl Session {
    fn new(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, seen: Vec::new(), last_cas: 0 }
    }

    /// The response to one step, with the unique numbers replaced; ends with that to `mn`.
    fn ask(&mut self, step: &str) -> String {
        let input = step.replace("{cas}", &self.last_cas.to_string());
        let input = input.replace("{cas-1}", &self.last_cas.wrapping_sub(1).to_string());
        self.stream.write_all(format!("{input}mn\r\n").as_bytes()).unwrap();
        let (mut response, mut byte) = (Vec::new(), [0; 4096]);
        while !response.ends_with(b"MN\r\n") {
            match self.stream.read(&mut byte) {
                Ok(0) => {
                    response.extend_from_slice(b"<EOF>");
                    break;
                }
                Ok(length) => response.extend_from_slice(&byte[..length]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{step:?}: {error}, after {:?}", response.escape_ascii()),
            }
        }
        self.comparable(&response.escape_ascii().to_string())
    }

    fn comparable(&mut self, response: &str) -> String {
        let lines = response.split("\\r\\n").map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["VERSION", ..] => "VERSION *".to_owned(),
                ["VALUE", key, flags, length, cas] => {
                    format!("VALUE {key} {flags} {length} {}", self.cas(cas))
                }
                // Slab classes and sizes are those of the server.
                ["ME", key, exp, la, cas, fetch, ..] => {
                    let cas = self.cas(cas.strip_prefix("cas=").unwrap());
                    format!("ME {key} {exp} {la} {cas} {fetch}")
                }
                ["HD" | "VA", ..] => {
                    let word = |word: &&str| match word.strip_prefix('c') {
                        Some(cas) if cas.parse::<u64>().is_ok() => self.cas(cas),
                        _ => (*word).to_owned(),
                    };
                    words.iter().map(word).collect::<Vec<_>>().join(" ")
                }
                _ => line.to_owned(),
            }
        });
        lines.collect::<Vec<_>>().join("\\r\\n")
    }

    fn cas(&mut self, text: &str) -> String {
        let cas = text.parse().unwrap();
        self.last_cas = cas;
        let known = self.seen.iter().position(|&seen| seen == cas).unwrap_or_else(|| {
            self.seen.push(cas);
            self.seen.len() - 1
        });
        format!("cas-{known}")
    }
}

/// Scripts: steps of one connection, each ends in `\r\n`.
fn scripts() -> Vec<Vec<String>> {
    let long_key = "k".repeat(251);
    let many = "k v t ".repeat(9);
    let opaque = "x".repeat(31);
    let all: &[&[&str]] = &[
        // Meta gets: values, flags, misses.
        &[
            "set k 5 0 3\r\nabc\r\n",
            "mg k\r\n",
            "mg k v\r\n",
            "mg k s v\r\n",
            "mg k t\r\n",
            "mg k f c s k Oqq v\r\n",
            "mg none\r\n",
            "mg none v k O1\r\n",
            "mg none q\r\n",
            "mg k q\r\n",
            "mg k q v\r\n",
            "mg\r\n",
            "mg k k k\r\n",
            "mg k !\r\n",
            "mg k Tx\r\n",
            "mg k E3\r\n",
            "mg k S5\r\n",
            "mg k P1 L2\r\n",
            "delete k\r\n",
        ],
        // Hits and last access.
        &[
            "set k 0 0 1\r\n1\r\n",
            "mg k h l t\r\n",
            "mg k h l t\r\n",
            "mg k u h\r\n",
            "set k 0 0 1\r\n1\r\n",
            "mg k u h\r\n",
            "mg k u h\r\n",
            "get k\r\n",
            "mg k h\r\n",
            "me k\r\n",
            "me none\r\n",
            "me\r\n",
            "set k 0 100 1\r\n1\r\n",
            "me k\r\n",
        ],
        // Touch and recache.
        &[
            "set k 0 100 1\r\n1\r\n",
            "mg k t T200 t\r\n",
            "mg k T300 t\r\n",
            "mg k R30 t\r\n",
            "mg k R400 t\r\n",
            "mg k R400 t\r\n",
            "mg k t\r\n",
            "mg k T0 t\r\n",
            "mg k T-1\r\n",
            "mg k\r\n",
            "mg none T30\r\n",
            "mg none R30\r\n",
        ],
        // Vivify.
        &[
            "mg viv N30 s v t\r\n",
            "mg viv N30 s v\r\n",
            "mg viv s v\r\n",
            "get viv\r\n",
            "ms viv 2 T90\r\nhi\r\n",
            "mg viv N30 s v t\r\n",
            "mg viv2 Nx\r\n",
            "md viv\r\n",
            "md viv\r\n",
        ],
        // Stale items.
        &[
            "ms st 3 c\r\nold\r\n",
            "md st I T30\r\n",
            "mg st s v c\r\n",
            "mg st s v\r\n",
            "mg st v t\r\n",
            "ms st 3 I C{cas-1} c\r\nnew\r\n",
            "mg st v\r\n",
            "mg st v c\r\n",
            "ms st 3 I C1 c\r\nlat\r\n",
            "ms st 3 C1\r\nbad\r\n",
            "mg st c v\r\n",
            "ms st 3 C{cas} c\r\nok!\r\n",
            "mg st v\r\n",
            "md st I\r\n",
            "mg st v\r\n",
            "md st\r\n",
        ],
        // Meta sets: modes, errors that swallow the data, and those that do not.
        &[
            "ms m 2\r\nab\r\n",
            "ms m S2\r\nab\r\n",
            "ms m 2 ME\r\nxx\r\n",
            "ms m 2 MA\r\ncd\r\n",
            "ms m 2 MP\r\n__\r\n",
            "mg m v\r\n",
            "ms m 2 MR\r\nrr\r\n",
            "mg m v\r\n",
            "ms none 2 MR\r\nrr\r\n",
            "ms none 2 MA\r\nrr\r\n",
            "ms m 2 MX\r\nzz\r\n",
            "ms m 2 M\r\nzz\r\n",
            "ms m 2 MEE\r\nzz\r\n",
            "ms m 2 q\r\nqq\r\n",
            "mg m v\r\n",
            "ms m 2 q ME\r\nqq\r\n",
            "ms m 2 k b Oo c\r\nqq\r\n",
            "ms m\r\n",
            "ms\r\n",
            "ms m x\r\n",
            "ms m -1\r\n",
            "ms m 2 Fx\r\nff\r\n",
            "ms m 2 F5 T9\r\nff\r\n",
            "mg m f t v\r\n",
            "ms m 2 F-1\r\nff\r\n",
            "mg m f\r\n",
            "ms m 2 Tx Cx\r\nff\r\n",
            "ms m 2 F1 F2\r\nff\r\n",
            "ms m 2\r\nabc\r\n",
            "version\r\n",
            "ms m 2 MA C1\r\nzz\r\n",
            "mg m c\r\n",
            "ms m 2 MA C{cas} c\r\nyy\r\n",
            "mg m v\r\n",
            "ms m 2 MR C1\r\nzz\r\n",
            "ms none 2 C5\r\nzz\r\n",
            "ms none 2 ME C5 c\r\nzz\r\n",
            "md none\r\n",
        ],
        // Keys in base64.
        &[
            "ms Zm9v 3 b k\r\nbar\r\n",
            "mg Zm9v b v k\r\n",
            "mg foo v k\r\n",
            "get foo\r\n",
            "me foo\r\n",
            "me Zm9v b\r\n",
            "mg Zm9 b\r\n",
            "mg !!!! b\r\n",
            "mg Zm9vIQ== b k\r\n",
            "md Zm9v b k\r\n",
            "ma AAEC b N0 J13 v k\r\n",
            "mg AAEC b k\r\n",
            "md AAEC b q\r\n",
            "ms a$b 2 b\r\nxx\r\n",
            "mg AA=C b\r\n",
            "mg =AAA b\r\n",
            "mg A=== b\r\n",
            "mg Zm9v!!!! b k\r\n",
        ],
        // Meta deletes.
        &[
            "set d 0 0 1\r\n1\r\n",
            "md d C1\r\n",
            "md d C1 k Oz\r\n",
            "mg d c\r\n",
            "md d C{cas} q\r\n",
            "mg d\r\n",
            "md d q\r\n",
            "md d k O1\r\n",
            "md\r\n",
            "md d !\r\n",
            "md d q q\r\n",
            "md d Tx\r\n",
        ],
        // Meta arithmetic.
        &[
            "ma n\r\n",
            "ma n q k O1\r\n",
            "ma n N0 J10 v\r\n",
            "ma n v\r\n",
            "ma n D5 v t\r\n",
            "ma n MD D3 v\r\n",
            "ma n M- v\r\n",
            "ma n M+ v\r\n",
            "ma n MI v\r\n",
            "ma n MD D99 v\r\n",
            "ma n MX\r\n",
            "ma n Dx\r\n",
            "ma n Jx\r\n",
            "ma n T30 t v\r\n",
            "ma n t T60 v\r\n",
            "ma n q\r\n",
            "ma n c\r\n",
            "ma n C1\r\n",
            "ma n C{cas} c v\r\n",
            "ma n2 N30 q v t\r\n",
            "set s 0 0 1\r\nx\r\n",
            "ma s\r\n",
            "set s 0 0 0\r\n\r\n",
            "ma s\r\n",
            "ma s C1\r\n",
            "get n\r\n",
            "ma n k O2 v\r\n",
            "md n\r\n",
            "md n2\r\n",
            "ma n N-1 J5 v\r\n",
            "ma n v\r\n",
            "set s 0 0 2\r\n99\r\n",
            "ma s D1 v c\r\n",
            "get s\r\n",
            "ma s MD D50 v\r\n",
            "get s\r\n",
        ],
        // Other commands.
        &[
            "verbosity 1\r\n",
            "verbosity x\r\n",
            "verbosity 1 noreply\r\n",
            "verbosity\r\n",
            "cache_memlimit 4\r\n",
            "cache_memlimit x\r\n",
            "cache_memlimit 64\r\n",
            "cache_memlimit\r\n",
            "cache_memlimit 64 noreply\r\n",
            "cache_memlimit 4294967295\r\n",
            "lru\r\n",
            "lru mode\r\n",
            "lru mode x\r\n",
            "lru mode flat\r\n",
            "lru mode segmented\r\n",
            "lru tune 10 25 0.1 2.0\r\n",
            "lru tune 50 50 1 1\r\n",
            "lru tune 1 1 0 1\r\n",
            "lru tune 1 1 1\r\n",
            "lru temp_ttl 60\r\n",
            "lru temp_ttl -1\r\n",
            "lru temp_ttl x\r\n",
            "lru tune nan 10 1 1\r\n",
            "lru tune 10 25 nan 2.0\r\n",
            "lru tune 10 25 inf 2.0\r\n",
            "lru tune 10 25 0x1p-1 2.0\r\n",
            "lru tune 10 25 1e400 2.0\r\n",
            "lru tune 10 25 .5 2.\r\n",
            "lru tune 10 25 1x 2.0\r\n",
            "lru tune 4294967306 25 0.1 2.0\r\n",
            "lru tune 2147483648 2147483660 0.1 2.0\r\n",
            "lru tune -1 25 0.1 2.0\r\n",
            "lru tune 20 40 0.2 2.0\r\n",
            "lru_crawler enable\r\n",
            "lru_crawler disable\r\n",
            "lru_crawler disable\r\n",
            "lru_crawler crawl 1\r\n",
            "lru_crawler enable\r\n",
            "lru_crawler enable noreply\r\n",
            "lru_crawler crawl ,\r\n",
            "lru_crawler crawl hash\r\n",
            "slabs automove 0\r\n",
            "slabs automove 2\r\n",
            "slabs automove 3\r\n",
            "slabs automove x\r\n",
            "slabs automove -1\r\n",
            "slabs automove\r\n",
            "slabs automove 1 noreply\r\n",
            "slabs automove 1 0.5\r\n",
            "slabs reassign x y\r\n",
            "slabs reassign 1\r\n",
            "slabs reassign 1 2 3\r\n",
            "extstore free_memchunks 1 2\r\n",
            "extstore free_memchunks 100 1\r\n",
            "extstore free_memchunks x 2\r\n",
            "extstore item_size 5\r\n",
            "extstore x y\r\n",
            "extstore\r\n",
            "stats extstore\r\n",
            "refresh_certs\r\n",
            "stats noreply\r\n",
            "stats detail on noreply\r\n",
            "stats detail off noreply\r\n",
            "stats detail x noreply\r\n",
            "stats sizes_enable\r\n",
            "stats sizes_disable\r\n",
            "lru_crawler\r\n",
            "lru_crawler x\r\n",
            "lru_crawler tocrawl 10\r\n",
            "lru_crawler tocrawl x\r\n",
            "lru_crawler tocrawl 0\r\n",
            "lru_crawler sleep 100\r\n",
            "lru_crawler sleep 1000001\r\n",
            "lru_crawler sleep x\r\n",
            "lru_crawler crawl x\r\n",
            "lru_crawler crawl 99\r\n",
            "lru_crawler crawl\r\n",
            "lru_crawler metadump all\r\n",
            "lru_crawler x y z\r\n",
            "watch\r\n",
            "watch fetchers\r\n",
            "shutdown\r\n",
            "shutdown graceful\r\n",
            "stats cachedump 1 1\r\n",
            "stats x\r\n",
            "stats detail\r\n",
            "stats detail x\r\n",
            "stats detail off\r\n",
            "stats reset\r\n",
            "nothing\r\n",
            "m\r\n",
            "mx\r\n",
            "mx a b\r\n",
            "slabs\r\n",
            "slabs x\r\n",
            "refresh\r\n",
            "bget a\r\n",
            "x\r\n",
        ],
        // Statistics by prefix and size.
        &[
            "stats detail on\r\n",
            "set p:a 0 0 1\r\n1\r\n",
            "get p:a\r\n",
            "get p:b p:c\r\n",
            "delete p:a\r\n",
            "set plain 0 0 1\r\n1\r\n",
            "set p:a 0 0 1\r\n123\r\n",
            "ms p:a 1\r\n123\r\n",
            "add p:a 0 0 1\r\n1\r\n",
            "gat 10 p:a p:b\r\n",
            "stats detail dump\r\n",
            "stats detail off\r\n",
            "get p:a\r\n",
            "stats detail dump\r\n",
            "stats detail on\r\n",
            "get p:a\r\n",
            "stats detail dump\r\n",
            "stats detail off\r\n",
            "stats reset\r\n",
            "stats detail dump\r\n",
            "stats sizes\r\n",
            "delete plain\r\n",
        ],
        &[
            "set a 0 0 1\r\n1\r\nget a\r\nset a 0 0 1\r\n2\r\nget a\r\nincr a 1\r\nmg a v\r\n",
            "get a a b a\r\nset b 0 0 1\r\nx\r\ngets none\r\nget a b\r\ndelete a\r\nget a b\r\n",
            "gat 10 b\r\ngat 10 none\r\ntouch b 5\r\nmg b t v\r\nmg none v q\r\nmg b s\r\n",
        ],
    ];
    let mut all: Vec<Vec<String>> =
        all.iter().map(|script| script.iter().map(|&step| step.to_owned()).collect()).collect();
    all.push(vec![
        format!("mg {long_key}\r\n"),
        format!("md {long_key}\r\n"),
        format!("ma {long_key}\r\n"),
        format!("me {long_key}\r\n"),
        format!("mg k {many}\r\n"),
        format!("md k {many}\r\n"),
        format!("ma k {many}\r\n"),
        format!("ms k 2 {many}\r\n"),
        format!("mg none O{opaque}\r\n"),
        format!("mg none O{opaque}y\r\n"),
        format!("md none O{opaque}y\r\n"),
        format!("ms k 2 O{opaque}y\r\nab\r\n"),
        format!("ms k 2 O{opaque}y MX\r\nab\r\n"),
        format!("ms k 2 O{opaque}\r\nab\r\n"),
        "md k\r\n".to_owned(),
        format!("ms big {}\r\n{}\r\n", (1 << 20) + 1, "x".repeat((1 << 20) + 1)),
        "mg big\r\n".to_owned(),
    ]);
    // The largest items, with flags or without; those that are larger, of every command.
    let set = |verb: &str, flags: u32, bytes: usize| {
        let cas = if verb == "cas" { " 1" } else { "" };
        format!("{verb} p:big {flags} 0 {bytes}{cas}\r\n{}\r\n", "x".repeat(bytes))
    };
    let mut large = vec!["stats detail on\r\n".to_owned()];
    for (flags, bytes) in [(0, 1_048_513), (0, 1_048_512), (9, 1_048_509), (9, 1_048_508)] {
        large.extend([set("set", flags, bytes), "mg p:big s\r\n".to_owned()]);
    }
    for verb in ["add", "replace", "append", "cas", "set"] {
        large.extend([set(verb, 0, 1 << 20), "mg p:big s\r\n".to_owned()]);
    }
    large.extend([set("set", 0, 1_048_000), set("append", 0, 1000), set("append", 0, 500)]);
    let ends = ["mg p:big s", "stats detail dump", "stats detail off", "delete p:big"];
    large.extend(ends.map(|line| format!("{line}\r\n")));
    all.push(large);
    all
}

#[test]
#[ignore = "needs memcached: cargo xtask test --clients"]
fn responses_are_those_of_memcached() {
    let (memcached, ours) = (Memcached::start(), Server::with(&["--hosts", "1", "--threads", "1"]));
    let (mut steps, mut wrong) = (0, Vec::new());
    for script in scripts() {
        let mut sessions = [Session::new(memcached.port), Session::new(ours.port)];
        for step in script {
            let [expected, found] = sessions.each_mut().map(|session| session.ask(&step));
            if step == "lru_crawler disable\r\n" {
                memcached.await_end_of_crawler();
            }
            if expected != found {
                let sent = step.escape_default();
                wrong.push(format!(
                    "sent      {sent:.200}\nmemcached {expected}\nkv        {found}\n"
                ));
            }
            steps += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {steps} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// The counters by name, without those that depend on time and place.
fn counters(session: &mut Session) -> BTreeMap<String, String> {
    let report = session.ask("stats\r\n");
    let lines = report.split("\\r\\n").filter_map(|line| line.strip_prefix("STAT "));
    lines
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// What memcached counts that `kv serve` has no like of: its library, and buffers that it pools.
const NOT_REPORTED: [&str; 8] = [
    "libevent",
    "response_obj_count",
    "response_obj_bytes",
    "read_buf_count",
    "read_buf_bytes",
    "read_buf_bytes_free",
    "unexpected_napi_ids",
    "round_robin_fallback",
];

#[test]
#[ignore = "needs memcached: cargo xtask test --clients"]
fn commands_are_counted_as_by_memcached() {
    let (memcached, ours) = (Memcached::start(), Server::with(&["--hosts", "1", "--threads", "1"]));
    let mut sessions = [Session::new(memcached.port), Session::new(ours.port)];
    let big = "x".repeat(1 << 20);
    let steps = [
        "set k 0 0 1\r\n1\r\n".to_owned(),
        "get k none\r\n".to_owned(),
        "gat 10 k\r\ngats 10 k none\r\ntouch k 5\r\ntouch none 5\r\n".to_owned(),
        "mg k v\r\nmg k T30\r\nmg none\r\nme k\r\n".to_owned(),
        "set k 0 0 1\r\n123\r\nadd k 0 0 1\r\n123\r\nms k 1\r\n123\r\n".to_owned(),
        format!("add k 0 0 {0}\r\n{big}\r\ncas k 0 0 {0} 1\r\n{big}\r\n", big.len()),
        format!("replace k 0 0 {0}\r\n{big}\r\nappend k 0 0 {0}\r\n{big}\r\n", big.len()),
        format!("set k 0 0 {0}\r\n{big}\r\nms k {0}\r\n{big}\r\n", big.len()),
        "incr k 1\r\ndecr k 1\r\ndelete k\r\ncas k 0 0 1 1\r\n1\r\nflush_all\r\n".to_owned(),
    ];
    let names = [
        "cmd_",
        "get_",
        "delete_",
        "incr_",
        "decr_",
        "cas_",
        "touch_",
        "store_",
        "total_items",
        "curr_items",
    ];
    for step in steps {
        let [expected, found] = sessions.each_mut().map(|session| {
            session.ask(&step);
            counters(session)
        });
        let same = |(name, value): (&String, &String)| {
            found.get(name) == Some(value) || !names.iter().any(|start| name.starts_with(start))
        };
        let differ: Vec<_> = expected.iter().filter(|&counter| !same(counter)).collect();
        let ours: Vec<_> = differ.iter().map(|(name, _)| found.get(*name)).collect();
        assert!(differ.is_empty(), "after {step:.100}: {differ:?}, not {ours:?}");
        let missing = expected.keys().filter(|name| !found.contains_key(*name));
        let missing: Vec<_> =
            missing.filter(|name| !NOT_REPORTED.contains(&name.as_str())).collect();
        assert!(missing.is_empty(), "not reported: {missing:?}");
    }
}
