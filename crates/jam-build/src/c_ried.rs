//! Builds a ried in C: a folder `NAME` with `NAME.c`, and other files in C beside it.
//!
//! Its functions are declared by `RIED_EXPORT` of `jam.h`, which leaves their types as text in the
//! objects. What they make is compiled into the library beside them: the table that a receiver reads.
//! C does not panic, so a function has one form; and it imports nothing, since a panic of the program
//! could not go through it.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use jam_abi::{RIED_EXPORT_SECTION, RIED_SYMBOL, RIED_VERSION};

use crate::compile::{Compilers, File, is_hidden, read, run, write};
use crate::error::Error;
use crate::library::Interface;
use crate::objects::Objects;
use crate::records::{Imported, of_c_ried};
use crate::ried::BuiltRied;

/// Whether a folder is that of a ried in C.
pub(crate) fn is_c_ried(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default();
    folder.join(name).with_extension("c").is_file()
}

impl Compilers {
    /// Builds the ried in `folder`, whose name is its own. Messages name it as `shown` does.
    pub(crate) fn c_ried(&self, folder: &Path, shown: &Path) -> Result<BuiltRied, Error> {
        // A library does not say which features it needs, so it must run wherever it is sent.
        let portable = Compilers { features: Vec::new(), ..self.clone() };
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut sources = Vec::new();
        for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
            let path = entry.map_err(Error::io("read", folder))?.path();
            if path.extension().is_some_and(|extension| extension == "c") && !is_hidden(&path) {
                sources.push(path);
            }
        }
        sources.sort();
        let (mut objects, mut exports, mut read_for) = (Vec::new(), Vec::new(), Vec::new());
        for path in &sources {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let (object_name, shown) = (format!("{name}.{file}"), shown.join(&*file));
            let shown = shown.to_string_lossy();
            let file = File { path, name: &object_name, shown: &shown };
            let bytes = portable.c(file, &["-DJAM_RIED"])?;
            exports.extend(of_c_ried(&Objects::parse(&shown, &bytes, "")?)?);
            objects.push(self.c_object(file));
            read_for.extend(self.sources(file)?);
        }
        let table = self.work.join(format!("{name}.table.c"));
        write(&table, table_of(&exports))?;
        let file =
            File { path: &table, name: &format!("{name}.table"), shown: "the table of a ried" };
        portable.c(file, &["-fno-builtin"])?;
        objects.push(self.c_object(file));
        let library = self.work.join(format!("lib{name}.so"));
        self.link_c(&objects, &library, &shown.to_string_lossy())?;
        let bytes = read(&library)?;
        let interface = Interface::of(&name, &bytes)?;
        interface.check(&name)?;
        // With its folder, to which files may be added.
        read_for.push(folder.to_owned());
        let (machine, sources) = (self.machine, read_for);
        Ok(BuiltRied { name, machine, library: bytes, interface, sources })
    }

    fn link_c(
        &self,
        objects: &[std::path::PathBuf],
        library: &Path,
        shown: &str,
    ) -> Result<(), Error> {
        let mut cc = self.c_compiler(shown)?;
        // What nothing defines is found here, not by a receiver's loader.
        cc.args(["-shared", "-s", "-Wl,--no-undefined", "-o"]).arg(library).args(objects);
        // Every process has it; those that use nothing of it do not name it.
        cc.args(["-Wl,--as-needed", "-lm"]);
        run(cc, shown).map(|_| ())
    }
}

/// The table, in C: layouts as in `ried.rs` of jam-abi.
fn table_of(exports: &[Imported]) -> String {
    let mut text = "#include <stddef.h>\n#include <stdint.h>\n\
        struct function { const uint8_t *name; size_t len; uint64_t signature; void (*injected)(void), \
        (*local)(void); const uint8_t *types; size_t types_len; };\n\
        struct ried { uint32_t version, reserved; const struct function *exports; size_t exports_len; \
        const void *imports; size_t imports_len; void *(*start)(const void *); };\n\
        static void *start(const void *host) { return 0; }\n"
        .to_owned();
    let mut rows = String::new();
    for (number, Imported { name, signature, types }) in exports.iter().enumerate() {
        let mut record = signature.to_le_bytes().to_vec();
        record.extend((name.len() as u16).to_le_bytes());
        record.extend((types.len() as u16).to_le_bytes());
        record.extend(name.bytes().chain(types.bytes()));
        let (bytes, len) = (record.iter().map(u8::to_string).collect::<Vec<_>>(), name.len());
        let bytes = bytes.join(",");
        writeln!(
            text,
            "extern void {name}(void);\n\
             __attribute__((used, aligned(1), section(\"{RIED_EXPORT_SECTION}\")))\n\
             static const uint8_t record_{number}[] = {{{bytes}}};"
        )
        .expect("writing to text");
        let (types, types_len) = (12 + len, types.len());
        write!(
            rows,
            "{{record_{number} + 12, {len}, {signature}u, {name}, {name}, record_{number} + {types}, \
             {types_len}}},"
        )
        .expect("writing to text");
    }
    let count = exports.len();
    text + &format!(
        "static const struct function functions[] = {{{rows}{{0}}}};\n\
         __attribute__((visibility(\"default\"), used))\n\
         const struct ried {RIED_SYMBOL} = {{{RIED_VERSION}, 0, functions, {count}, 0, 0, start}};\n"
    )
}
