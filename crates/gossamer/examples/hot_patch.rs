//! One function of a running rack is replaced by code that its program has never seen, under load,
//! without losing a request.
//!
//! A shop sets prices by a function that its processes were built with. While customers on every
//! thread order, a source file is written and compiled (`jam-build`), and every later order is priced
//! by that code, which travels to the shops and uses what their program exports. Orders are counted on
//! both sides: none is lost, and the switch falls between two
//! consecutive orders.
//!
//! `cargo run --release -p gossamer-rack --example hot_patch` runs two hosts on this machine. It needs rustc.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::thread;

use gossamer::jam::{self, Inject, LoadedJam, Policy};
use gossamer::{Rack, RackError, Trust, spawn_on_with, threads};

/// Orders of each customer at the new price.
const ORDERS: u64 = 20_000;

/// The new function: articles cost less by the dozen.
const SOURCE: &str = r#"
jam::property! { pub struct Shop = "hot-patch.Shop@1"; }

jam::import! {
    fn base_price(shop: &mut Shop, article: u64) -> u64;
    fn count_order(shop: &mut Shop) -> u64;
}

jam::plain! { pub struct Order { pub article: u64, pub pieces: u64 } }

pub fn price(shop: &mut Shop, order: Order) -> u64 {
    count_order(shop);
    let full = base_price(shop, order.article) * order.pieces;
    if order.pieces >= 12 { full - full / 10 } else { full }
}
"#;

/// What jams work on.
struct Shop {
    base: u64,
    orders: u64,
}

jam::open! {
    Shop = "hot-patch.Shop@1";
}

jam::property! {
    /// The shop, as a jam's types name it.
    struct ShopOfJams = "hot-patch.Shop@1";
}

jam::plain! {
    /// What a customer wants.
    struct Order { article: u64, pieces: u64 }
}

jam::export! {
    /// The price of one piece.
    fn base_price(shop: &mut Shop, article: u64) -> u64 {
        shop.base + article
    }

    /// Counts an order.
    fn count_order(shop: &mut Shop) -> u64 {
        shop.orders += 1;
        shop.orders
    }
}

type Price = LoadedJam<&'static mut ShopOfJams, Order, (), u64>;

/// The function that the program was built with.
fn price(shop: &mut Shop, (article, pieces): (u64, u64)) -> u64 {
    count_order(shop);
    base_price(shop, article) * pieces
}

fn main() -> Result<(), RackError> {
    let arguments = std::env::args().any(|word| word == "--hosts");
    let rack = Rack::from_args()?;
    let rack = if arguments { rack } else { rack.hosts(2) };
    // The code comes from a host of this rack, and none of its packages has it.
    rack.jams(Policy::AnyPeer).run(|| patch(ORDERS))
}

/// Patches the rack while each customer orders, until it has ordered so often at the new price.
pub(crate) fn patch(orders_each: u64) {
    let last = threads().last().expect("a thread");
    let shop = last.entrust_with(|()| Shop { base: 100, orders: 0 }, ());
    let patches: Vec<Trust<Vec<u8>>> =
        threads().map(|thread| thread.entrust_with(|()| Vec::new(), ())).collect();
    let customers: Vec<_> = threads()
        .zip(&patches)
        .map(|(thread, patch)| {
            spawn_on_with(thread, order, (shop.clone(), patch.clone(), orders_each))
        })
        .collect();

    // Meanwhile they order; then their host gets the new code.
    while orders(&shop) < orders_each / 10 {
        gossamer::yield_now();
    }
    // On a thread of its own, with a large stack: this one goes on meanwhile.
    let compiler = thread::spawn(compile);
    while !compiler.is_finished() {
        gossamer::yield_now();
    }
    let code = compiler.join().expect("a compiled function");
    println!("a new price function of {} bytes, after {} orders", code.len(), orders(&shop));
    for patch in &patches {
        patch.apply_with(|patch, code| *patch = code, code.clone());
    }

    let mut all = 0;
    for (number, customer) in customers.into_iter().enumerate() {
        let (old, new) = customer.join().expect("a customer");
        println!("customer {number}: {old} orders at the old price, {new} at the new one");
        assert!(new > 0, "the code came before the last order");
        all += old + new;
    }
    assert_eq!(orders(&shop), all, "no order was lost");
    println!("{all} orders, none lost");
}

fn orders(shop: &Trust<Shop>) -> u64 {
    shop.apply(|shop| shop.orders)
}

/// A customer: how many of its orders had the old price, and how many the new one.
fn order((shop, patch, orders): (Trust<Shop>, Trust<Vec<u8>>, u64)) -> (u64, u64) {
    let mut patched: Option<Price> = None;
    let (old, new) = (Cell::new(0), Cell::new(0));
    // Until the patch is here, and then as many again.
    while new.get() < orders {
        if patched.is_none() {
            let code = patch.apply(|patch| patch.clone());
            patched = (!code.is_empty()).then(|| Price::from_blob(&code).expect("a jam of mine"));
        }
        let (article, pieces) = (new.get() % 7, 12);
        let full = (100 + article) * pieces;
        match &patched {
            None => {
                let price = shop.apply_with(price, (article, pieces));
                assert_eq!(price, full);
                old.set(old.get() + 1);
            }
            Some(jam) => {
                let price = shop.inject(jam, Order { article, pieces }, &[]).expect("a price");
                assert_eq!(price, full - full / 10);
                new.set(new.get() + 1);
            }
        }
    }
    (old.get(), new.get())
}

/// Compiles the new function: its blob.
fn compile() -> Vec<u8> {
    let folder: PathBuf = std::env::temp_dir().join(format!("hot-patch-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the source");
    let source = folder.join("price.rs");
    fs::write(&source, SOURCE).expect("a file for the source");
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let builder = jam_build::Builder::new(&target, folder.join("build")).expect("a known target");
    let blob = builder.build_jam(&source).expect("a jam").blob;
    fs::remove_dir_all(&folder).expect("the folder is there");
    blob
}
