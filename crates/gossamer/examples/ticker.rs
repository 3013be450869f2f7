//! An exchange that shows when to use records, delegation and notifications:
//!
//! | What | How | Why |
//! |---|---|---|
//! | prices | records in a segment, which the exchange writes and every trader reads | one writer, many readers, nothing to decide: no fiber of the exchange takes part in a read |
//! | orders | delegated to the trustee of the book, which traders look up by name | the first order gets the shares: the owner of the book decides, one order after another |
//! | alarms | a write with notification, into a segment of the trader that asked | a trader that waits for a price sleeps, and the exchange wakes only the traders that asked |
//!
//! `cargo run --release -p gossamer-rack --example ticker` runs three hosts on this machine; `--
//! --hosts 2 --threads 4` sets how many. It is also a job: `gossamer run --hosts a,b,c -- target/release/examples/ticker`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gossamer::{
    Access, HostId, Notify, Rack, RackError, Record, RecordWriter, RemoteSegment, Rights, Segment,
    SegmentError, Trust,
};
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The symbols, by number.
const SYMBOLS: [&str; 8] = ["ABLE", "BOAT", "CORN", "DUSK", "ECHO", "FERN", "GOLD", "HAZE"];

/// Quotes that each trader reads, and orders that it sends.
const READS: u64 = 20_000;
const ORDERS: u64 = 200;

/// Shares of each symbol that are for sale.
const SHARES: u32 = 500;

/// How far the price of its symbol must have moved to wake a trader.
const MOVE: u64 = 25;

/// The value of a record: a reader never sees a mixture of two quotes.
#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy)]
#[repr(C)]
struct Quote {
    bid: u64,
    ask: u64,
    tick: u64,
}

#[derive(Serialize, Deserialize)]
struct Order {
    symbol: usize,
    shares: u32,
}

/// A trader that wants to be woken.
#[derive(Serialize, Deserialize)]
struct Watch {
    symbol: usize,
    /// The ask that it has seen.
    from: u64,
    /// Its segment: a word for each symbol.
    segment: String,
}

/// The property of the book's trustee. Its clients never see it.
struct Book {
    left: [u32; SYMBOLS.len()],
    watches: Vec<Watch>,
}

impl Book {
    /// Sells up to `order.shares` of the shares that are left.
    fn sell(&mut self, order: Order) -> u32 {
        let left = &mut self.left[order.symbol % SYMBOLS.len()];
        let sold = order.shares.min(*left);
        *left -= sold;
        sold
    }
}

/// The result of one trader.
#[derive(Serialize, Deserialize)]
pub(crate) struct Trader {
    pub(crate) host: u32,
    pub(crate) bought: u32,
    /// Quotes whose bid and ask are of different moments.
    pub(crate) torn: u64,
    /// How far the price had moved when it was woken.
    pub(crate) moved: u64,
    read: Duration,
    order: Duration,
}

/// The result of a day at the exchange.
pub(crate) struct Day {
    pub(crate) traders: Vec<Trader>,
    pub(crate) left: u32,
    pub(crate) ticks: u64,
    pub(crate) alarms: u64,
}

/// A day at the exchange, with a trader on each host of the rack that this is called in, each of which
/// reads `reads` quotes.
pub(crate) fn trade(reads: u64) -> Result<Day, SegmentError> {
    // Every host may read the prices; the exchange writes them as their owner.
    let prices = Segment::builder("prices")
        .len(SYMBOLS.len() * Record::<Quote>::BYTES)
        .access(Access::read())
        .notify(Notify::Never)
        .export()?;
    let mut feed = Feed::open(&prices)?;
    feed.tick()?;

    // The book lives on some thread of this host. Any fiber that knows its name can send orders.
    let book = gossamer::entrust(Book { left: [SHARES; SYMBOLS.len()], watches: Vec::new() });
    let publication = gossamer::publish("orders", &book)?;

    let is_over = Arc::new(AtomicBool::new(false));
    let feeding = gossamer::spawn({
        let (book, is_over) = (book.clone(), is_over.clone());
        move || -> Result<Feed, SegmentError> {
            while !is_over.load(Ordering::Relaxed) {
                feed.tick()?;
                feed.wake_traders(book.apply(|book| std::mem::take(&mut book.watches)))?;
                gossamer::sleep(Duration::from_micros(100));
            }
            Ok(feed)
        }
    });
    // A trader on the last thread of each host.
    let threads: Vec<_> = gossamer::threads().collect();
    let traders: Vec<_> = threads
        .chunk_by(|one, next| one.thread().host == next.thread().host)
        .filter_map(|of_host| of_host.last())
        .map(|thread| gossamer::spawn_on_with(*thread, |reads| trader(reads).unwrap(), reads))
        .collect();
    let traders = traders.into_iter().map(|trader| trader.join().expect("a trader")).collect();
    is_over.store(true, Ordering::Relaxed);
    let feed = feeding.join().expect("the feed")?;
    drop(publication);
    let left = book.apply(|book| book.left.iter().sum());
    Ok(Day { traders, left, ticks: feed.ticks, alarms: feed.alarms })
}

/// Moves the prices, and wakes the traders that asked.
struct Feed {
    quotes: Vec<RecordWriter<Quote>>,
    asks: [u64; SYMBOLS.len()],
    watches: Vec<Watch>,
    ticks: u64,
    alarms: u64,
}

impl Feed {
    fn open(prices: &Segment) -> Result<Feed, SegmentError> {
        let quotes = (0..SYMBOLS.len()).map(|symbol| prices.record(symbol));
        let quotes = quotes.collect::<Result<_, _>>()?;
        let asks = std::array::from_fn(|symbol| 1000 * (symbol as u64 + 1));
        Ok(Feed { quotes, asks, watches: Vec::new(), ticks: 0, alarms: 0 })
    }

    /// Writes new prices: a few stores for each, regardless of the number of readers.
    fn tick(&mut self) -> Result<(), SegmentError> {
        self.ticks += 1;
        for (symbol, quote) in self.quotes.iter_mut().enumerate() {
            // Up for a while, then down again.
            let is_rising = (self.ticks / 64 + symbol as u64).is_multiple_of(2);
            let ask = &mut self.asks[symbol];
            *ask = if is_rising { *ask + 1 } else { *ask - 1 };
            quote.write(&Quote { bid: *ask - 2, ask: *ask, tick: self.ticks });
        }
        Ok(())
    }

    /// Writes to the segments of the traders whose price has moved far enough, and notifies them.
    fn wake_traders(&mut self, new: Vec<Watch>) -> Result<(), SegmentError> {
        self.watches.extend(new);
        let asks = self.asks;
        let has_moved = |watch: &mut Watch| asks[watch.symbol].abs_diff(watch.from) >= MOVE;
        for watch in self.watches.extract_if(.., has_moved) {
            let alarms = RemoteSegment::open(&watch.segment)?;
            alarms.at::<u64>(watch.symbol).write_notify(&asks[watch.symbol])?;
            self.alarms += 1;
        }
        Ok(())
    }
}

/// A trader, on any host: it finds everything by name.
fn trader(reads: u64) -> Result<Trader, Box<dyn std::error::Error>> {
    let host = gossamer::segments().local().0;
    let prices = RemoteSegment::open("prices")?;
    let orders: Trust<Book> = gossamer::lookup("orders")?;
    let quote = |symbol: usize| -> Result<Quote, SegmentError> {
        let (_version, quote) = prices.record(symbol)?.read()?.expect("prices come before traders");
        Ok(quote)
    };

    // Only the exchange may write to the segment, and each of its writes requests a notification.
    let segment = format!("alarms/{host}");
    let alarms = Segment::builder(&segment)
        .len(SYMBOLS.len() * size_of::<u64>())
        .access(Access::none().with(HostId(0), Rights::WRITE))
        .notify(Notify::Conditional)
        .export()?;
    let symbol = host as usize % SYMBOLS.len();
    let from = quote(symbol)?.ask;
    orders.apply_with(|book, watch| book.watches.push(watch), Watch { symbol, from, segment });

    let mut torn = 0;
    let begin = Instant::now();
    for read in 0..reads {
        let Quote { bid, ask, .. } = quote(read as usize % SYMBOLS.len())?;
        torn += u64::from(bid + 2 != ask);
    }
    let read = begin.elapsed() / reads as u32;

    let mut bought = 0;
    let begin = Instant::now();
    for number in 0..ORDERS {
        let order = Order { symbol: number as usize % SYMBOLS.len(), shares: 10 };
        bought += orders.apply_with(Book::sell, order);
    }
    let order = begin.elapsed() / ORDERS as u32;

    // The fiber sleeps until the exchange writes; the notification's offset tells which
    // symbol moved.
    let alarm = alarms.notified()?;
    let ask = alarms.at_byte::<u64>(alarm.offset).read()?;
    Ok(Trader { host, bought, torn, moved: ask.abs_diff(from), read, order })
}

#[allow(dead_code)] // A test includes this file.
fn main() -> Result<(), RackError> {
    let has_settings = std::env::args().len() > 1;
    let rack = if has_settings { Rack::from_args()? } else { Rack::new().hosts(3).threads(2) };
    rack.run(|| {
        let day = trade(READS).expect("a day without an error");
        println!(
            "trader   a quote, by READ   an order, delegated   bought   woken after a move of"
        );
        for trader in &day.traders {
            let Trader { host, bought, moved, read, order, .. } = trader;
            let (read, order) = (format!("{read:.1?}"), format!("{order:.1?}"));
            println!("host {host:<3} {read:>16} {order:>21} {bought:>8} {moved:>23}");
        }
        let sold = SHARES * SYMBOLS.len() as u32 - day.left;
        let quotes = READS * day.traders.len() as u64;
        let torn: u64 = day.traders.iter().map(|trader| trader.torn).sum();
        println!(
            "\n{sold} shares sold and {} left: the book serves orders as they arrive",
            day.left
        );
        println!(
            "{quotes} quotes read, {torn} of them torn, without an instruction of the exchange"
        );
        println!("{} ticks, of which {} woke a trader", day.ticks, day.alarms);
    })
}
