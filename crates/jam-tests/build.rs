//! Builds the package of the tests, and two that their program does not include.

fn main() -> Result<(), jam_build::Error> {
    jam_build::package("jams")?;
    jam_build::package("unseen")?;
    jam_build::package("hostile")?;
    Ok(())
}
