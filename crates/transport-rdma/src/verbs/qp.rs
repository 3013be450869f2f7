//! [`Qp`]: a reliable connected queue pair, and its work requests.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{io, mem};

use ibverbs_sys::{self as ffi, ibv_qp_attr_mask as Set};
use primitive::sync::Ordering;
use rdma_protocol::Endpoint;

use super::device::{check, made};
use super::posted::PostCounter;
use super::{Cq, Gid, Local, Mr, Receive, Verb, Work};

/// The sizes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Work requests in its send queue.
    pub(crate) sends: u32,
    /// Receives in its receive queue.
    pub(crate) receives: u32,
    /// Bytes of inline data of a request.
    pub(crate) inline: u32,
}

/// The parameters of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionParams {
    /// A packet that is not acknowledged within 4.096 microseconds times two to the power of this
    /// is sent again.
    pub(crate) timeout: u8,
    /// Retransmissions, at most 7.
    pub(crate) retries: u8,
    /// The RNR timer, as the code of the verbs' specification.
    pub(crate) rnr_timer: u8,
    /// READs and atomics in flight: those that it starts, and those that it serves.
    pub(crate) initiator_depth: u8,
    pub(crate) responder_resources: u8,
}

/// A queue pair: a [`Qp`], or a fake in tests.
pub(crate) trait Pair {
    /// Posts `works`, whose local bytes are parts of the memory to send from, with one doorbell.
    ///
    /// # Errors
    /// The error of the device for the first request that it refuses; those before it are posted.
    ///
    /// # Panics
    /// If a part is not inside the memory.
    fn post(&mut self, works: &[Work]) -> io::Result<()>;

    /// Posts a receive, in the memory to receive in.
    ///
    /// # Errors
    /// The error of the device.
    ///
    /// # Panics
    /// If it is not inside the memory.
    fn receive(&mut self, receive: Receive) -> io::Result<()>;

    /// Puts it into the error state: requests in flight fail, and the peer can access nothing through
    /// it.
    ///
    /// # Errors
    /// The error of the device.
    fn fail(&mut self) -> io::Result<()>;
}

/// A reliable connected queue pair, with the memory of its work requests, which outlives it.
pub(crate) struct Qp {
    qp: NonNull<ffi::ibv_qp>,
    inline: usize,
    port: u8,
    requests: Vec<ffi::ibv_send_wr>,
    parts: Vec<ffi::ibv_sge>,
    /// Memory to send from and read into.
    sends: Mr,
    /// Memory to receive in.
    receives: Mr,
    posted: Arc<PostCounter>,
    _cq: Arc<Cq>,
}

// SAFETY: libibverbs' queue pairs may be used from any thread; the pointers in `requests` and
// `parts` are written anew by every call that uses them.
unsafe impl Send for Qp {}

impl Qp {
    /// A queue pair that reports to `cq`, ready to be given receives. It sends from and reads into
    /// the memory `sends`, and receives in `receives`.
    ///
    /// # Panics
    /// If these are not all of one device, and both memories of one protection domain.
    pub(crate) fn new(
        (sends, receives): (Mr, Mr),
        cq: &Arc<Cq>,
        port: u8,
        limits: Limits,
    ) -> io::Result<Qp> {
        let pd = sends.pd().clone();
        assert!(Arc::ptr_eq(&pd, receives.pd()), "memory of two protection domains");
        assert!(pd.device().is(cq.device()), "a queue pair and its queue are of one device");
        let create = |inline| {
            let mut wanted = ffi::ibv_qp_init_attr {
                send_cq: cq.cq(),
                recv_cq: cq.cq(),
                cap: ffi::ibv_qp_cap {
                    max_send_wr: limits.sends,
                    max_recv_wr: limits.receives,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: inline,
                },
                qp_type: ffi::ibv_qp_type::IBV_QPT_RC,
                ..Default::default()
            };
            // SAFETY: domain and queue are alive and of one device, and are kept so by the result.
            let qp = made(unsafe { ffi::ibv_create_qp(pd.pd(), &mut wanted) })?;
            Ok((qp, inline.min(wanted.cap.max_inline_data) as usize))
        };
        let (qp, inline) = with_inline(limits.inline, create)?;
        let (requests, parts, _cq) = (Vec::new(), Vec::new(), cq.clone());
        let posted = pd.device().post_counters.counter();
        let mut this = Qp { qp, inline, port, requests, parts, sends, receives, posted, _cq };
        pd.device().queue_pairs.fetch_add(1, Ordering::Relaxed);
        use ffi::ibv_access_flags as Access;
        let access = Access::IBV_ACCESS_REMOTE_WRITE
            | Access::IBV_ACCESS_REMOTE_READ
            | Access::IBV_ACCESS_REMOTE_ATOMIC;
        let init = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_INIT,
            port_num: port,
            qp_access_flags: access.0,
            ..Default::default()
        };
        let set = Set::IBV_QP_STATE
            | Set::IBV_QP_PKEY_INDEX
            | Set::IBV_QP_PORT
            | Set::IBV_QP_ACCESS_FLAGS;
        this.modify(init, set)?;
        Ok(this)
    }

    /// Its number, as its peer and its completions name it.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: alive until `self` is dropped; the number never changes.
        unsafe { (*self.qp.as_ptr()).qp_num }
    }

    /// Connects it to `peer`: `own` is the address that the peer was sent, and `gid` the one to send
    /// from.
    pub(crate) fn connect(
        &mut self,
        (own, gid): (Endpoint, Gid),
        peer: Endpoint,
        params: ConnectionParams,
    ) -> io::Result<()> {
        let mut ready = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_RTR,
            path_mtu: own.mtu.min(peer.mtu).into(),
            dest_qp_num: peer.qp,
            rq_psn: peer.first,
            max_dest_rd_atomic: params.responder_resources,
            min_rnr_timer: params.rnr_timer,
            ..Default::default()
        };
        ready.ah_attr.port_num = self.port;
        ready.ah_attr.dlid = peer.lid;
        if !gid.is_infiniband {
            ready.ah_attr.is_global = 1;
            ready.ah_attr.grh.dgid = ffi::ibv_gid { raw: peer.gid };
            ready.ah_attr.grh.sgid_index = gid.index;
            ready.ah_attr.grh.hop_limit = 64;
        }
        let set = Set::IBV_QP_STATE
            | Set::IBV_QP_AV
            | Set::IBV_QP_PATH_MTU
            | Set::IBV_QP_DEST_QPN
            | Set::IBV_QP_RQ_PSN
            | Set::IBV_QP_MAX_DEST_RD_ATOMIC
            | Set::IBV_QP_MIN_RNR_TIMER;
        self.modify(ready, set)?;
        let send = ffi::ibv_qp_attr {
            qp_state: ffi::ibv_qp_state::IBV_QPS_RTS,
            timeout: params.timeout,
            retry_cnt: params.retries,
            // Forever: a peer that posts no receives is detected by the carrier.
            rnr_retry: 7,
            sq_psn: own.first,
            max_rd_atomic: params.initiator_depth,
            ..Default::default()
        };
        let set = Set::IBV_QP_STATE
            | Set::IBV_QP_TIMEOUT
            | Set::IBV_QP_RETRY_CNT
            | Set::IBV_QP_RNR_RETRY
            | Set::IBV_QP_SQ_PSN
            | Set::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(send, set)
    }

    fn modify(&mut self, mut to: ffi::ibv_qp_attr, set: Set) -> io::Result<()> {
        let set = i32::try_from(set.0).map_err(io::Error::other)?;
        // SAFETY: the queue pair is alive, and `to` is a whole description of which `set` names the
        // fields that count.
        check(unsafe { ffi::ibv_modify_qp(self.qp.as_ptr(), &mut to, set) })
    }
}

impl Pair for Qp {
    fn post(&mut self, works: &[Work]) -> io::Result<()> {
        if works.is_empty() {
            return Ok(());
        }
        let Self { requests, parts, sends, posted, .. } = self;
        posted.add(works.len() as u64);
        parts.clear();
        parts.extend(works.iter().map(|work| part(sends, work.local)));
        requests.clear();
        requests.extend(works.iter().map(|work| request(work, self.inline)));
        // The vectors do not move any more.
        let (first, part) = (requests.as_mut_ptr(), parts.as_mut_ptr());
        let mut bad = ptr::null_mut();
        // SAFETY: the indices are inside both vectors, which are equally long; the list that is
        // made of them ends with the null of its last. The queue pair is alive, and the function is
        // its own. All local bytes are inside `sends` (`part` has checked). It reads those of
        // inline requests here; the others the device reads and writes until they have completed or
        // the queue pair is gone, and `sends` stays registered beyond that: it is `self`'s own, and
        // dropped after the queue pair was destroyed.
        check(unsafe {
            for index in 0..works.len() {
                let request = first.add(index);
                if (*part.add(index)).length > 0 {
                    (*request).sg_list = part.add(index);
                    (*request).num_sge = 1;
                }
                if index + 1 < works.len() {
                    (*request).next = request.add(1);
                }
            }
            let qp = self.qp.as_ptr();
            let post = (*(*qp).context).ops.post_send.ok_or(io::ErrorKind::Unsupported)?;
            post(qp, first, &mut bad)
        })
    }

    fn receive(&mut self, receive: Receive) -> io::Result<()> {
        let mut part = part(&self.receives, receive.local);
        let mut request = ffi::ibv_recv_wr {
            wr_id: receive.id,
            next: ptr::null_mut(),
            sg_list: &mut part,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is alive, the function is its own, and the list has one entry. Its
        // bytes are inside `receives`, which stays registered longer than the queue pair lives, as
        // in `post`.
        check(unsafe {
            let qp = self.qp.as_ptr();
            let post = (*(*qp).context).ops.post_recv.ok_or(io::ErrorKind::Unsupported)?;
            post(qp, &mut request, &mut bad)
        })
    }

    fn fail(&mut self) -> io::Result<()> {
        let error =
            ffi::ibv_qp_attr { qp_state: ffi::ibv_qp_state::IBV_QPS_ERR, ..Default::default() };
        self.modify(error, Set::IBV_QP_STATE)
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed only here; its memory is dropped behind this.
        let code = unsafe { ffi::ibv_destroy_qp(self.qp.as_ptr()) };
        self.sends.pd().device().queue_pairs.fetch_sub(1, Ordering::Relaxed);
        if code != 0 {
            // The memory's registrations end nevertheless: whatever still uses it is refused then.
            tracing::error!(code, "cannot destroy a queue pair");
        }
    }
}

/// What `create` makes with `inline` bytes of inline data, or fewer if the device refuses so many: some
/// lower the number, others reject it as invalid, and none says which it would take.
fn with_inline<T>(inline: u32, mut create: impl FnMut(u32) -> io::Result<T>) -> io::Result<T> {
    match create(inline) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && inline > 0 => {
            with_inline(inline / 2, create)
        }
        result => result,
    }
}

/// A part of `memory` for the device.
fn part(memory: &Mr, local: Local) -> ffi::ibv_sge {
    let Local { at, len } = local;
    let whole = memory.memory().len();
    assert!(len <= whole && at <= whole - len, "bytes {at} and {len} more of {whole}");
    let length = u32::try_from(len).expect("a part is smaller than its memory's limit");
    ffi::ibv_sge { addr: memory.address() + at as u64, length, lkey: memory.local_key() }
}

/// A request for the device, without its part and its successor.
fn request(work: &Work, inline: usize) -> ffi::ibv_send_wr {
    use ffi::{ibv_send_flags as Flag, ibv_wr_opcode as Code};
    // SAFETY: numbers, null pointers and unions of them: all zeroes are a value of it.
    let mut request: ffi::ibv_send_wr = unsafe { mem::zeroed() };
    let (address, key) = work.remote;
    let mut flags = 0;
    let mut set = |flag: Flag, is_set: bool| flags |= if is_set { flag.0 } else { 0 };
    set(Flag::IBV_SEND_SIGNALED, work.is_signalled);
    set(Flag::IBV_SEND_FENCE, work.is_fenced);
    let carries = matches!(work.verb, Verb::Write(_) | Verb::Send | Verb::Immediate(_));
    set(Flag::IBV_SEND_INLINE, carries && work.local.len <= inline);
    request.wr_id = work.id;
    request.send_flags = flags;
    request.wr.rdma =
        ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: address, rkey: key };
    let atomic = |compare_add, swap| ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
        remote_addr: address,
        compare_add,
        swap,
        rkey: key,
    };
    match work.verb {
        Verb::Write(None) => request.opcode = Code::IBV_WR_RDMA_WRITE,
        Verb::Write(Some(word)) => {
            request.opcode = Code::IBV_WR_RDMA_WRITE_WITH_IMM;
            request.__bindgen_anon_1.imm_data = word.to_be();
        }
        Verb::Send => request.opcode = Code::IBV_WR_SEND,
        Verb::Immediate(word) => {
            request.opcode = Code::IBV_WR_SEND_WITH_IMM;
            request.__bindgen_anon_1.imm_data = word.to_be();
        }
        Verb::Read => request.opcode = Code::IBV_WR_RDMA_READ,
        Verb::Swap(expected, new) => {
            request.opcode = Code::IBV_WR_ATOMIC_CMP_AND_SWP;
            request.wr.atomic = atomic(expected, new);
        }
        Verb::Add(addend) => {
            request.opcode = Code::IBV_WR_ATOMIC_FETCH_AND_ADD;
            request.wr.atomic = atomic(addend, 0);
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_gets_the_inline_bytes_that_it_takes() {
        // What a device that takes at most `most` is asked for until it takes it, and whether it does.
        let asked = |most: Option<u32>, code| {
            let mut asked = Vec::new();
            let made = with_inline(20, |inline| {
                asked.push(inline);
                let takes = most.is_some_and(|most| inline <= most);
                takes.then_some(()).ok_or_else(|| io::Error::from_raw_os_error(code))
            });
            (asked, made.is_ok())
        };
        const EINVAL: i32 = 22;
        assert_eq!(asked(Some(20), EINVAL), (vec![20], true));
        assert_eq!(asked(Some(5), EINVAL), (vec![20, 10, 5], true));
        assert_eq!(asked(Some(0), EINVAL), (vec![20, 10, 5, 2, 1, 0], true));
        assert_eq!(asked(None, EINVAL), (vec![20, 10, 5, 2, 1, 0], false));
        const ENOMEM: i32 = 12;
        assert_eq!(asked(Some(5), ENOMEM), (vec![20], false));
    }
}
