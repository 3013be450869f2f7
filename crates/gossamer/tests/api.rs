//! Every behaviour of a rack over the threads of one process, over hosts that share memory, over
//! hosts whose transport copies, and over TCP, with TLS and without.

#[macro_use]
mod behaviours;
mod common;

macro_rules! on_every_kind {
    ($($module:ident: $name:ident;)*) => {
        on_every_kind! { threads, Threads: $($module $name)* }
        on_every_kind! { hosts, Hosts: $($module $name)* }
        on_every_kind! { copies, Copies: $($module $name)* }
        #[cfg(feature = "tcp")]
        on_every_kind! { tcp, Tcp: $($module $name)* }
        #[cfg(feature = "tcp")]
        on_every_kind! { tls, Tls: $($module $name)* }
    };
    ($of:ident, $kind:ident: $($module:ident $name:ident)*) => {
        mod $of {
            use crate::{behaviours, common::{self, Kind}};
            $(
                #[test]
                fn $name() {
                    common::within_deadline(stringify!($name), || {
                        common::run(Kind::$kind, behaviours::$module::$name).unwrap();
                    });
                }
            )*
        }
    };
}

behaviours!(on_every_kind);
