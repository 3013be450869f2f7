//! Who may do what in a rack: identities and the authority that signs them, revocation, TLS, and the
//! acceptor that lets members of the rack in.

pub(crate) mod acceptor;
pub mod authority;
pub mod identity;
pub mod member;
pub(crate) mod revocation;
pub mod tls;
