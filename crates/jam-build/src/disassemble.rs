//! The text of a jam as instructions: what the system's disassembler says of it.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use jam_format::Parsed;

use crate::compile::write;
use crate::elf::elf;
use crate::error::Error;

/// Disassembles the text of a jam, with the system's `objdump` or `llvm-objdump`, whichever knows the
/// machine. Addresses are offsets in text; the entry has the label `<entry>:`, and calls of imports
/// have their names.
///
/// The disassembler reads a file: `file` is written, and removed.
///
/// ```no_run
/// # fn f(bytes: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
/// let blob = jam_format::Parsed::parse(bytes)?;
/// print!("{}", jam_build::disassemble(&blob, "jam.o".as_ref())?);
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::NoDisassembler`], if the system has none for the machine; [`Error::Io`].
pub fn disassemble(blob: &Parsed<'_>, file: &Path) -> Result<String, Error> {
    write(file, elf(blob))?;
    let machine = blob.machine();
    let cross = format!("{machine}-linux-gnu-objdump");
    let programs = ["objdump", "llvm-objdump", &cross];
    let listed = programs.iter().find_map(|program| listing(program, file).transpose());
    let removed = fs::remove_file(file).map_err(Error::io("remove", file));
    removed?;
    listed.unwrap_or_else(|| Err(Error::NoDisassembler { machine, expected: programs.join(", ") }))
}

/// What `program` says of a file, without its first lines; nothing if it is not there or does not know
/// the machine.
fn listing(program: &str, file: &Path) -> Result<Option<String>, Error> {
    let mut command = Command::new(program);
    command.args(["--disassemble", "--section=.text", "--no-show-raw-insn"]).arg(file);
    let output = match command.env("LC_ALL", "C").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        output => output.map_err(Error::io("start", program))?,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let instructions =
        text.split_once("Disassembly of section .text:").map(|(_, text)| text.trim());
    let known = instructions.filter(|text| output.status.success() && text.lines().count() > 1);
    Ok(known.map(|text| format!("{text}\n")))
}
