//! `kv serve` as a user runs it: a rack of two processes behind one port.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::Server;

/// Sends `input`, closes the client's side, and returns all responses.
fn exchange(server: &Server, input: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let mut response = String::new();
    thread::scope(|scope| {
        // Reads while it sends: the server stops reading while too much output is unsent.
        scope.spawn(move || {
            writer.write_all(input).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        stream.read_to_string(&mut response).unwrap();
    });
    response
}

#[test]
fn items_of_both_hosts_are_reached_through_one_port() {
    let server = Server::start();
    let keys: Vec<String> = (0..200).map(|number| format!("key{number}")).collect();
    let sets: String =
        keys.iter().map(|key| format!("set {key} 0 0 {}\r\n{key}\r\n", key.len())).collect();
    assert_eq!(exchange(&server, sets.as_bytes()), "STORED\r\n".repeat(keys.len()));
    let found = exchange(&server, format!("get {}\r\n", keys.join(" ")).as_bytes());
    let values = keys.iter().map(|key| format!("VALUE {key} 0 {}\r\n{key}\r\n", key.len()));
    assert_eq!(found, values.collect::<String>() + "END\r\n");
    let stats = exchange(&server, b"stats\r\n");
    assert!(stats.contains("STAT curr_items 200\r\n"), "{stats}");
    assert_eq!(exchange(&server, b"flush_all\r\nget key0 key1\r\n"), "OK\r\nEND\r\n");
}

/// If two racks shared a port, each connection would reach one of them at random.
#[test]
fn another_rack_does_not_join_the_port() {
    let server =
        Server::with(&["--hosts", "2", "--threads", "1", "--listen", "127.0.0.1,127.0.0.2"]);
    let port = server.port.to_string();
    // The address of the first host is in use, that of the second, and both by one for all.
    for (listen, in_use) in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.3,127.0.0.2", "127.0.0.2"),
        ("0.0.0.0,127.0.0.3", "0.0.0.0"),
        // Neither an IPv6 address nor one of its own may hide the other rack.
        ("0.0.0.0,::1", "0.0.0.0"),
        ("127.0.0.3,0.0.0.0", "0.0.0.0"),
    ] {
        // Ends the second rack if it does start.
        let second = Command::new("timeout")
            .args(["60", env!("CARGO_BIN_EXE_kv"), "serve", "--hosts", "2"])
            .args(["--port", &port, "--listen", listen])
            .output()
            .unwrap();
        assert_eq!(second.status.code(), Some(1), "{listen}: {second:?}");
        let error = String::from_utf8(second.stderr).unwrap();
        assert!(error.contains(in_use) && error.contains("in use"), "{listen}: {error}");
    }
    assert_eq!(exchange(&server, b"get a\r\n"), "END\r\n");
}

/// Not the address as well, which is free.
#[test]
fn an_error_names_the_socket_that_cannot_be_made() {
    let server = Command::new("timeout")
        .args(["60", env!("CARGO_BIN_EXE_kv"), "serve", "--port", "0"])
        .args(["--unix", "/nonexistent/socket"])
        .output()
        .unwrap();
    let error = String::from_utf8(server.stderr).unwrap();
    assert_eq!(server.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot listen on /nonexistent/socket: "), "{error}");
}

/// One address for all that the machine has, and one of these: both are this rack's own.
#[test]
fn hosts_of_one_rack_may_listen_on_overlapping_addresses() {
    for listen in ["0.0.0.0,127.0.0.1", "127.0.0.1,0.0.0.0"] {
        let server = Server::with(&["--hosts", "2", "--threads", "1", "--listen", listen]);
        assert_eq!(exchange(&server, b"get a\r\n"), "END\r\n", "{listen}");
    }
}

#[test]
fn large_items_cross_the_rack() {
    let server = Server::start();
    let value = "x".repeat(1_000_000);
    for key in ["a", "b", "c", "d", "e", "f"] {
        let input = format!("set {key} 0 0 {}\r\n{value}\r\nget {key}\r\n", value.len());
        let expected = format!("STORED\r\nVALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len());
        assert!(
            exchange(&server, input.as_bytes()) == expected,
            "the item {key} came back changed"
        );
    }
}

/// More clients that request much and read nothing than the output budget covers.
#[test]
fn clients_that_read_nothing_do_not_fill_the_memory() {
    let server = Server::start();
    let value = "x".repeat(1_000_000);
    let set = |key| format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
    let keys: Vec<String> = (0..16).map(|number| format!("k{number}")).collect();
    let sets: String = keys.iter().map(set).collect();
    assert_eq!(exchange(&server, sets.as_bytes()), "STORED\r\n".repeat(keys.len()));
    let get = format!("get {}\r\n", keys.join(" "));
    let clients: Vec<TcpStream> = (0..150)
        .map(|_| {
            let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            client.write_all(get.as_bytes()).unwrap();
            client
        })
        .collect();
    // Requests of a client that reads are served meanwhile.
    for _ in 0..5 {
        let found = exchange(&server, b"get k0\r\n");
        assert!(found == format!("VALUE k0 0 {}\r\n{value}\r\nEND\r\n", value.len()));
    }
    // Wait until the server has read as much as it will.
    let reads = || {
        let stats = exchange(&server, b"stats\r\n");
        stats.lines().find(|line| line.starts_with("STAT cmd_get ")).unwrap().to_owned()
    };
    let (mut before, mut now) = (String::new(), reads());
    while before != now {
        thread::sleep(Duration::from_millis(500));
        (before, now) = (now, reads());
    }
    drop(clients);
    // 64 MiB of items, 64 MiB of output, requests in flight between the processes, and the program.
    let peak = server.peak_memory_bytes();
    assert!(peak < 400 << 20, "{} MiB, {now}", peak >> 20);
}

/// Clients that announce large values, or ask for very many keys, and do not go on.
#[test]
fn clients_that_do_not_finish_commands_do_not_fill_the_memory() {
    let server = Server::with(&["--hosts", "1", "--threads", "1"]);
    let clients: Vec<_> = (0..500)
        .map(|number| {
            let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            client.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
            let head = match number % 2 {
                0 => b"set k 0 0 1000000\r\n".to_vec(),
                _ => b"get ".to_vec(),
            };
            // As much as the server takes.
            let _ = client.write_all(&[head, b"k ".repeat(490_000)].concat());
            client
        })
        .collect();
    // Until the server has read as much as it will.
    let (mut before, mut peak) = (0, server.peak_memory_bytes());
    while before != peak {
        thread::sleep(Duration::from_secs(1));
        (before, peak) = (peak, server.peak_memory_bytes());
    }
    drop(clients);
    // 64 MiB of unfinished commands, some KiB for each connection, and the program.
    assert!(peak < 200 << 20, "{} MiB", peak >> 20);
}

/// Lines of a report whose names start with `name`.
fn lines<'a>(report: &'a str, name: &str) -> Vec<&'a str> {
    report.lines().filter(|line| line.starts_with(&format!("STAT {name}"))).collect()
}

#[test]
fn settings_and_reports_are_those_of_all_hosts() {
    let server = Server::start();
    assert_eq!(exchange(&server, b"lru_crawler disable\r\nverbosity 2\r\n"), "OK\r\nOK\r\n");
    let idle: Vec<_> =
        (0..16).map(|_| TcpStream::connect(("127.0.0.1", server.port)).unwrap()).collect();
    let current = || {
        let report = exchange(&server, b"stats\r\n");
        let line = lines(&report, "curr_connections ")[0].to_owned();
        line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()
    };
    let start = Instant::now();
    while current() <= idle.len() {
        assert!(start.elapsed() < Duration::from_secs(30), "{} connections", current());
    }
    // The kernel spreads connections over the hosts.
    let mut pids = Vec::new();
    for _ in 0..16 {
        let report = exchange(&server, b"stats settings\r\nlru_crawler crawl all\r\n");
        for line in ["lru_crawler no", "verbosity 2", "maxconns 2048"] {
            assert!(report.contains(&format!("STAT {line}\r\n")), "{report}");
        }
        assert!(report.ends_with("CLIENT_ERROR lru crawler disabled\r\n"));
        let report = exchange(&server, b"stats\r\n");
        assert!(report.contains("STAT max_connections 2048\r\n"), "{report}");
        pids.push(lines(&report, "pid ")[0].to_owned());
        let report = exchange(&server, b"stats conns\r\n");
        let is = |state: &str| report.matches(&format!(":state {state}\r\n")).count();
        assert_eq!(is("conn_listening"), 2, "{report}");
        assert!(is("conn_read") >= idle.len() && is("conn_parse_cmd") == 1, "{report}");
        let numbers: Vec<_> = report
            .lines()
            .filter(|line| line.contains(":addr "))
            .map(|line| line.split(':').next())
            .collect();
        assert!(numbers.len() == numbers.iter().collect::<std::collections::HashSet<_>>().len());
    }
    pids.dedup();
    assert_eq!(pids.len(), 1, "{pids:?}");
}

#[test]
fn the_limit_of_open_files_is_raised() {
    let server = Server::after("ulimit -Sn 128", &["--hosts", "1", "--threads", "1"]);
    let clients: Vec<_> = (0..200)
        .map(|_| {
            let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            client.write_all(b"mn\r\n").unwrap();
            client
        })
        .collect();
    for (number, mut client) in clients.iter().enumerate() {
        let mut answer = [0; 4];
        client.read_exact(&mut answer).unwrap_or_else(|error| panic!("client {number}: {error}"));
        assert_eq!(&answer, b"MN\r\n");
    }
}

/// The fiber that hands it to the others serves it then. Its stack was the only free one, or no second
/// connection would be turned away.
#[test]
fn a_connection_is_served_when_no_further_stack_can_be_mapped() {
    let server = Server::with(&["--hosts", "1", "--threads", "1"]);
    server.map_no_further_stack();
    let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    for _ in 0..3 {
        client.write_all(b"mn\r\n").unwrap();
        let mut answer = [0; 4];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"MN\r\n");
    }
    let mut second = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    second.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(second.read(&mut [0; 4]).unwrap(), 0, "a stack was left for a fiber of the pool");
}

#[test]
fn more_connections_than_files_are_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kv"));
    // More than the kernel gives even to root (fs.nr_open).
    let output = command.args(["serve", "--port", "0", "--connections", "4000000000"]).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(text.contains("4000000000 connections need 4000000128 open files"), "{text}");
}

#[test]
fn each_host_can_have_an_address_of_its_own() {
    let server =
        Server::with(&["--hosts", "2", "--threads", "1", "--listen", "127.0.0.1,127.0.0.2"]);
    for address in ["127.0.0.1", "127.0.0.2"] {
        let mut client = TcpStream::connect((address, server.port)).unwrap();
        client.write_all(b"set k 0 0 1\r\n1\r\nstats conns\r\nquit\r\n").unwrap();
        let mut response = String::new();
        client.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("STORED\r\n"), "{response}");
        for address in ["127.0.0.1", "127.0.0.2"] {
            let listener = format!(":addr tcp:{address}:{}\r\n", server.port);
            assert!(response.contains(&listener), "{response}");
        }
    }
}

#[test]
fn concurrent_clients_lose_no_increment() {
    let server = Server::start();
    assert_eq!(exchange(&server, b"set n 0 0 1\r\n0\r\n"), "STORED\r\n");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| exchange(&server, "incr n 1\r\n".repeat(500).as_bytes()));
        }
    });
    assert_eq!(exchange(&server, b"get n\r\n"), "VALUE n 0 4\r\n4000\r\nEND\r\n");
}

/// SIGTERM to one process drains both.
#[test]
fn sigterm_ends_the_server_when_it_has_answered() {
    let mut server = Server::start();
    let value = "x".repeat(1_000_000);
    let set = format!("set big 0 0 {}\r\n{value}\r\n", value.len());
    assert_eq!(exchange(&server, set.as_bytes()), "STORED\r\n");
    // More than the buffers of a socket hold, so that the rest is due when the signal comes.
    let keys = 32;
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            client.write_all(format!("get {}\r\n", "big ".repeat(keys)).as_bytes()).unwrap();
            let mut head = [0; 6];
            client.read_exact(&mut head).unwrap();
            assert_eq!(&head, b"VALUE ");
            client
        })
        .collect();
    server.terminate();
    let whole = keys * ("VALUE big 0 1000000\r\n\r\n".len() + value.len()) + "END\r\n".len();
    for mut client in clients {
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).expect("the connection ends");
        assert_eq!("VALUE ".len() + rest.len(), whole);
        assert!(rest.ends_with(b"\r\nEND\r\n"));
    }
    let status = server.ended();
    assert!(status.success(), "{status}");
    // One that has been answered may be counted, too, if it ends at the same time.
    let said = server.rest_of_output();
    let drained = said.strip_prefix("kv: ended by SIGTERM, ");
    let drained = drained.and_then(|said| said.split_once(" connections drained\n"));
    assert!(matches!(drained, Some(("4" | "5", ""))), "{said}");
    assert!(TcpStream::connect(("127.0.0.1", server.port)).is_err(), "it still listens");
}
