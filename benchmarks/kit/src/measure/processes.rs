//! Processes of others' benchmarks: that they end with the case, and whether one listens.

use std::net::TcpListener;
use std::process::Child;
use std::{fs, io};

/// A process that is ended with this value.
#[derive(Debug)]
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Killing what has ended already is an error that means nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that was free a moment ago, on every address of this machine.
///
/// # Errors
/// When there is none.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("0.0.0.0", 0))?.local_addr()?.port())
}

/// Whether somebody listens on `port`. A server may take one connection only, so none is wasted on
/// asking; the kernel's lists of sockets tell.
///
/// # Errors
/// When these cannot be read.
pub fn listens(port: u16) -> io::Result<bool> {
    let is_it = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let is_local = fields.next().is_some_and(|at| at.ends_with(&format!(":{port:04X}")));
        is_local && fields.nth(1) == Some("0A")
    };
    // Where the kernel has no IPv6 there is no second list.
    let sixth = match fs::read_to_string("/proc/net/tcp6") {
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        list => list?,
    };
    Ok((fs::read_to_string("/proc/net/tcp")? + &sixth).lines().any(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_seen() {
        let socket = TcpListener::bind(("0.0.0.0", 0)).expect("a socket");
        let port = socket.local_addr().expect("its address").port();
        assert!(listens(port).expect("the lists"));
    }

    #[test]
    fn a_free_port_has_no_listener() {
        assert!(!listens(free_port().expect("a port")).expect("the lists"));
    }
}
