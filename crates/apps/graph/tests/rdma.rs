//! The benchmark over RDMA, between two processes that have a device each. It needs devices: `cargo
//! xtask rdma-test` runs it in a guest that has some.

mod common;

use std::fs;

use common::{text, two_tasks, value};

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn the_benchmark_is_valid_over_rdma_and_finds_the_same_edges() {
    let devices = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let mut devices: Vec<String> =
        devices.map(|device| device.file_name().into_string().unwrap()).collect();
    devices.sort();
    assert!(devices.len() >= 2, "RDMA devices: {devices:?}, expected two: cargo xtask rdma-test");
    let run = ["graph500", "--scale", "8", "--roots", "3", "--threads", "1"];
    let rdma = two_tasks(&run, "0", Some([&devices[0], &devices[1]]));
    let alone = common::graph(&run).output().unwrap();
    assert!(alone.status.success(), "{}", text(&alone.stderr));
    assert_eq!(value(&rdma, "num_mpi_processes"), "2");
    assert_eq!(value(&rdma, "mean_nedge"), value(&text(&alone.stdout), "mean_nedge"));
}
