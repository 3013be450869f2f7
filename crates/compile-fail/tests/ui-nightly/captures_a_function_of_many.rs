//! A function with more arguments than most.
type Last = fn(u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u64) -> u64;

#[rustfmt::skip]
fn last(
    _: u8, _: u8, _: u8, _: u8, _: u8, _: u8, _: u8, _: u8, _: u8, _: u8, _: u8, _: u8, n: u64,
) -> u64 {
    n
}

fn main() {
    gossamer::Rack::new()
        .threads(1)
        .run(|| {
            let counter = gossamer::entrust(0u64);
            let f: Last = last;
            counter.apply(move |c| *c = f(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, *c));
        })
        .unwrap();
}
