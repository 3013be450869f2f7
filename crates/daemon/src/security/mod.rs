//! Authentication and roles: identities and the authority that signs them, revocation, TLS, and the
//! acceptor of members' connections.

pub(crate) mod acceptor;
pub mod authority;
pub mod identity;
pub mod member;
pub(crate) mod revocation;
pub mod tls;
