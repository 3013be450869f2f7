//! The `gossamer` command's side: calls daemons, runs jobs on them, and judges how they ended.
//!
//! Reading order: [`call`] (one request to one daemon or many), [`run`] (a job, from its program
//! to its exit status; with `credentials`, `link`, `session_state`, `lines`, `printer`, `signals`
//! and [`verdict`]), [`tables`], [`rates`] and `top` (views of jobs, hosts and threads).

pub mod call;
mod credentials;
pub(crate) mod lines;
mod link;
pub(crate) mod printer;
mod program;
pub mod rates;
pub mod run;
mod session_state;
mod signals;
pub mod tables;
pub(crate) mod top;
pub mod verdict;
