//! `kv serve` as a user runs it: a rack of two processes behind one port.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

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

#[test]
fn large_items_cross_the_rack() {
    let server = Server::start();
    let value = "x".repeat(1 << 20);
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
    let value = "x".repeat(1 << 20);
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
    let value = "x".repeat(1 << 20);
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
    let whole = keys * ("VALUE big 0 1048576\r\n\r\n".len() + value.len()) + "END\r\n".len();
    for mut client in clients {
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).expect("the connection ends");
        assert_eq!("VALUE ".len() + rest.len(), whole);
        assert!(rest.ends_with(b"\r\nEND\r\n"));
    }
    let status = server.ended();
    assert!(status.success(), "{status}");
    assert!(TcpStream::connect(("127.0.0.1", server.port)).is_err(), "it still listens");
}
