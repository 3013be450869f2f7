//! A process that never sleeps, pinned to one core: the bad neighbour.

use std::hint::black_box;
use std::io;
use std::process::ExitCode;

use crate::roles::{Lifeline, Role, RoleProcess};

/// The hog as a role of this program.
pub const HOG: Role = Role { name: "hog", run: burn };

/// A running hog; it ends with this value.
#[derive(Debug)]
pub struct Hog(RoleProcess);

impl Hog {
    /// Starts a hog on `core` and waits until it burns.
    ///
    /// # Errors
    /// When the process cannot be started or pinned.
    pub fn on(core: usize) -> io::Result<Hog> {
        let mut role = RoleProcess::spawn(HOG, Some(core), &[])?;
        role.first_line()?;
        Ok(Hog(role))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

fn burn(line: Lifeline) -> ExitCode {
    println!("burning");
    let mut sum = 0u64;
    while !line.is_closed() {
        for number in 0..1_000 {
            sum = black_box(sum.wrapping_add(number));
        }
    }
    ExitCode::SUCCESS
}
