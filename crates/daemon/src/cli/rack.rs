//! `gossamer rack`: makes racks and signs their members.

use daemon_protocol::Role;

use crate::cli::args::RackCommand;
use crate::cli::output::{CommandError, complain, print, read};
use crate::security::authority::{self, Authority, AuthorityError, Card};

pub(crate) fn rack(command: RackCommand) -> Result<(), CommandError> {
    match command {
        RackCommand::Init { name, dir, host, address } => {
            let first = host.as_ref().zip(address.as_deref());
            authority::init_rack(&dir, &name, first)?;
            let dir = dir.display();
            let mut text = format!(
                "Made rack {name}. Its authority, which signs new members, is in {dir}/ca: keep it safe.\n\
                 Your administrator identity is in {dir}/admin: use it with `gossamer ps --identity \
                 {dir}/admin`, or set GOSSAMER_IDENTITY.\n"
            );
            if let Some(host) = host {
                text += &format!(
                    "The identity of {host}'s daemon is in {dir}/{host}: move it to that host.\n"
                );
            }
            print(text.as_bytes())
        }
        RackCommand::Join { identity, card: None } => {
            print(authority::request(&identity)?.as_bytes())
        }
        RackCommand::Join { identity, card: Some(card) } => {
            let text = read(&card)?;
            let card: Card = toml::from_str(&text)
                .map_err(|error| AuthorityError::Card(error.message().to_owned()))?;
            let member = authority::accept(&identity, &card)?;
            let article = if member.role == Role::Admin { "an" } else { "a" };
            let (name, role, rack) = (member.name, member.role, member.rack);
            let text = format!("{name} is now {article} {role} of the rack {rack}\n");
            print(text.as_bytes())
        }
        RackCommand::Sign { dir, name, role, address, days, request } => {
            // Slow output must not block other commands that wait for the authority.
            let text = read(&request)?;
            let authority = Authority::open(&dir)?;
            let card = authority.sign(&text, &name, role, authority::good_for(days))?;
            if let Some(address) = address.filter(|_| role == Role::Host)
                && let Some(before) = authority.note_host(&name, &address)?
            {
                complain(&format!(
                    "the address of {name} was {before}: members with an older card still use that"
                ));
            }
            let text = toml::to_string(&card).map_err(|error| {
                CommandError::Other(format!("cannot serialise the card: {error}"))
            })?;
            print(text.as_bytes())
        }
        RackCommand::Revoke { dir, name } => {
            let (list, count) = Authority::open(&dir)?.revoke(&name)?;
            let done = match count {
                0 => format!("All certificates of {name} were revoked before"),
                _ => format!("Revoked {count} certificates of {name}"),
            };
            let text = format!(
                "{done}. Copy {} into the identity directory of every \
                 daemon and of every member: it takes effect within two seconds. Jobs that \
                 {name} has started go on; end them with `gossamer kill`.\n",
                list.display()
            );
            print(text.as_bytes())
        }
    }
}
