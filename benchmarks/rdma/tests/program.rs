//! The program from outside, where there is no RDMA device: what it lists and what it refuses. That
//! every candidate answers is what `cargo xtask bench rdma` demands.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-bench"));
    command.env_remove("GOSSAMER_RDMA_HOSTS");
    command.args(arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_list_can_be_narrowed() {
    let all = text(&run(&["--list"]).stdout);
    for part in [
        "ib_write_lat",
        "ib_send_lat",
        "ib_write_bw",
        "ib_read_lat",
        "ib_atomic_lat",
        "work requests",
        "get-rdma/gossamer/by READ, 100 bytes, 64 fibers",
    ] {
        assert!(all.contains(part), "no {part} in\n{all}");
    }
    let some = text(&run(&["--list", "--filter", "rdma-rate/ib"]).stdout);
    assert_eq!(some, "rdma-rate/ib_write_bw -s 64\n");
}

#[test]
fn without_devices_it_says_where_there_are_some() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cargo xtask bench rdma"), "{}", text(&output.stderr));
}
