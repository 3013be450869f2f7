//! Makes gRPC's client and server for one service with one method, as `protoc` would from
//!
//! ```text
//! package bench;
//! message Number { uint64 value = 1; }
//! service Adder { rpc Add(Number) returns (Number); }
//! ```

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let add = Method::builder()
        .name("add")
        .route_name("Add")
        .input_type("crate::peer::tonic::Number")
        .output_type("crate::peer::tonic::Number")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let adder = Service::builder().name("Adder").package("bench").method(add).build();
    Builder::new().compile(&[adder]);
    println!("cargo::rerun-if-changed=build.rs");
}
