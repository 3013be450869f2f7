//! A process that never sleeps, pinned to one core: the bad neighbour.

use std::hint::black_box;
use std::io;
use std::process::ExitCode;

use crate::roles::{LifeLine, Player, Role};

/// The hog as a role of this program.
pub const HOG: Role = Role { name: "hog", run: burn };

/// A running hog; it ends with this value.
#[derive(Debug)]
pub struct Hog(Player);

impl Hog {
    /// Starts a hog on `core` and waits until it burns.
    ///
    /// # Errors
    /// When the process cannot be started or pinned.
    pub fn on(core: usize) -> io::Result<Hog> {
        let mut player = Player::start(HOG, Some(core), &[])?;
        player.first_line()?;
        Ok(Hog(player))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

fn burn(line: LifeLine) -> ExitCode {
    println!("burning");
    let mut sum = 0u64;
    while !line.cut() {
        for number in 0..1_000 {
            sum = black_box(sum.wrapping_add(number));
        }
    }
    ExitCode::SUCCESS
}
