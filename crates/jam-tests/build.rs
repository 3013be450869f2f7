//! Builds the packages of tests and examples, of which programs include some, and only send others.

fn main() -> Result<(), jam_build::Error> {
    jam_build::package("jams")?;
    jam_build::package("unseen")?;
    jam_build::package("rieds")?;
    jam_build::package("interfaces")?;
    jam_build::package("hostile")?;
    Ok(())
}
