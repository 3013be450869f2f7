//! Payloads that do not fit a slot: how a queue pair carries out
//! [`Offers`](rdma_protocol::payloads::Offers) and [`Fetches`](rdma_protocol::payloads::Fetches).

use std::sync::Arc;

use rdma_protocol::immediate::{self, RECORD};
use transport_api::Namespace;

use crate::memory::remote::RemoteMemory;
use crate::qp::connection::{Connection, Incident};
use crate::qp::send_queue::{Destination, Source};
use crate::verbs::{Pair, Verb};
use rdma_protocol::payloads::BLOCKS;

impl<P: Pair> Connection<P> {
    /// The peer offers its payloads in `blocks`, which has `len` bytes.
    pub(crate) fn fetch_from(&mut self, blocks: Arc<RemoteMemory>, len: usize) {
        self.fetches.blocks_of(len / BLOCKS);
        self.blocks = Some(blocks);
    }

    /// Whether the peer offers its payloads in blocks.
    pub(crate) fn reads_payloads(&self) -> bool {
        self.blocks.is_some()
    }

    /// Offers a payload to `thread` of the peer.
    pub(crate) fn offer(&mut self, thread: u32, tag: u64, payload: Vec<u8>) {
        if !self.has_failed {
            self.offers.push(thread, tag, payload);
            self.offer_more();
        }
    }

    /// Bytes of payloads in `namespace` that wait because the peer has not taken earlier ones.
    pub(crate) fn waiting_bulk(&self, namespace: Namespace) -> usize {
        self.offers.waiting().bulk_bytes(namespace)
    }

    fn offer_more(&mut self) {
        while let Some(piece) = self.offers.offer() {
            self.send(Verb::Send, None, Source::Bytes(&piece.encode()));
        }
    }

    /// The peer has acknowledged payloads: offers more if the acknowledgement was valid.
    pub(super) fn acknowledged(
        &mut self,
        valid: Result<(), String>,
        sink: &mut dyn FnMut(Incident),
    ) {
        match valid {
            Ok(()) => {
                self.offer_more();
                self.post(sink);
            }
            Err(what) => self.violation(what, sink),
        }
    }

    /// Handles a record of `len` bytes that announces a piece.
    pub(super) fn announced(
        &mut self,
        bytes: &[u8; RECORD],
        len: usize,
        sink: &mut dyn FnMut(Incident),
    ) {
        match self.fetches.announced(bytes, len) {
            Ok(()) => self.fetch_more(sink),
            Err(what) => self.violation(what, sink),
        }
    }

    /// Starts the next READs, and acknowledges completed ones to the peer.
    pub(super) fn fetch_more(&mut self, sink: &mut dyn FnMut(Incident)) {
        while let Some((blocks, (at, len))) = self.blocks.clone().zip(self.fetches.read()) {
            self.fetch(Verb::Read, (&blocks, at), len, Destination::Piece);
        }
        if let Some(count) = self.fetches.acknowledge() {
            self.send_immediate(immediate::FETCHED | count);
        }
        self.post(sink);
    }

    /// `thread` of this host has taken payloads that were charged `cost`: returns credits.
    pub(crate) fn payloads_taken(&mut self, thread: u32, cost: u32) {
        if let Some(cost) = self.fetches.taken(thread, cost) {
            self.send_immediate(immediate::payload_credits(thread, cost));
        }
    }
}
