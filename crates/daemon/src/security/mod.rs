//! Authentication and roles: identities and the authority that signs them, revocation, TLS, the
//! acceptor of members' connections, and signatures of packages.

pub(crate) mod acceptor;
pub mod authority;
pub mod identity;
pub(crate) mod known_signers;
pub mod member;
pub(crate) mod revocation;
pub mod signing;
pub mod tls;
