//! The Rust text that belongs to a jam: the entry of the Injected Function, and the module of a package
//! in a program.

use std::fmt::Write;
use std::path::Path;

use crate::c_local::prefix;
use crate::library::RiedFunction;
use crate::records::Imported;
use crate::source::Shape;

/// The file that is compiled for an Injected Function: the author's file as a module, and an entry. The
/// author's function is part of the entry's loop, or `is_apart`, which takes less code.
pub(crate) fn injected(name: &str, path: &Path, shape: &Shape, is_apart: bool) -> String {
    let (types, call) = (types(shape), call(name, shape));
    let enter = if is_apart { "enter_apart" } else { "enter" };
    format!(
        "#![no_std]\n\
         #[path = {path:?}]\n\
         mod source;\n\
         use source::*;\n\
         type Types = jam::entry::Types<{types}>;\n\
         #[used]\n\
         #[unsafe(link_section = \"{section}\")]\n\
         static ENTRY: [u8; Types::RECORD_BYTES] = Types::record();\n\
         #[unsafe(no_mangle)]\n\
         unsafe extern \"C\" fn {entry}(call: *mut jam::Call) -> u32 {{\n\
         \x20   // SAFETY: the receiver makes the call as the signature of `Types` says.\n\
         \x20   unsafe {{ Types::{enter}(call, {call}) }}\n\
         }}\n",
        section = jam_abi::ENTRY_SECTION,
        entry = crate::link::ENTRY,
    )
}

/// The parameters of `jam::entry::Types` and of `jam::Jam`.
fn types(shape: &Shape) -> String {
    let property = shape.property.as_ref().map(|(name, is_mutable)| {
        if *is_mutable { format!("&'static mut {name}") } else { format!("&'static {name}") }
    });
    let parts = [&property, &shape.args, &shape.element, &shape.result];
    parts.map(|part| part.as_deref().unwrap_or("()")).join(", ")
}

/// A closure that calls the author's function.
fn call(name: &str, shape: &Shape) -> String {
    let mut arguments = Vec::new();
    if shape.has_context {
        arguments.push("&context");
    }
    if let Some((_, is_mutable)) = &shape.property {
        let whole = "&mut *property.cast()";
        arguments.push(if *is_mutable { whole } else { "&*property.cast()" });
    }
    if shape.args.is_some() {
        arguments.push("args");
    }
    if shape.element.is_some() {
        arguments.push("payload");
    }
    let arguments = arguments.join(", ");
    format!("|context, property, args, payload| source::{name}({arguments})")
}

/// A jam of a package, for its module.
pub(crate) struct Generated<'a> {
    pub(crate) id: u16,
    pub(crate) name: &'a str,
    pub(crate) signature: u64,
    pub(crate) property: &'a str,
    /// The absolute path of a source in Rust.
    pub(crate) path: Option<&'a Path>,
    pub(crate) shape: &'a Shape,
    pub(crate) imports: &'a [Imported],
    pub(crate) blob: &'a [u8],
}

/// A ried of a package, for its module.
pub(crate) struct GeneratedRied<'a> {
    pub(crate) id: u16,
    pub(crate) name: &'a str,
    pub(crate) exports: &'a [RiedFunction],
}

/// The module of a package: for each jam a module with its constants, the author's public items, and
/// the Local Function; for each ried one with its constants; and the package itself, whose file is
/// `bytes`. `library` has the Local Functions of jams in C: without it, they have none.
pub(crate) fn package(
    name: &str,
    bytes: &Path,
    library: Option<&str>,
    jams: &[Generated<'_>],
    rieds: &[GeneratedRied<'_>],
) -> String {
    let mut text = String::new();
    let ried_elements: Vec<_> = rieds
        .iter()
        .map(|ried| format!("&{}::{}", module_name(ried.name), constant(ried.name)))
        .collect();
    let elements: Vec<_> = jams.iter().map(|jam| format!("&{}::ELEMENT", jam.name)).collect();
    writeln!(
        text,
        "/// The package `{name}`.\n\
         pub static PACKAGE: ::jam::PackageData = ::jam::PackageData {{\n\
         \x20   name: {name:?},\n\
         \x20   bytes: include_bytes!({bytes:?}),\n\
         \x20   jams: &[{}],\n\
         \x20   rieds: &[{}],\n\
         }};",
        elements.join(", "),
        ried_elements.join(", ")
    )
    .expect("writing to text");
    for jam in jams {
        text.push_str(&module(jam, library));
    }
    rieds.iter().for_each(|ried| text.push_str(&ried_module(ried)));
    text
}

/// The name of the module of an element.
pub(crate) fn module_name(name: &str) -> String {
    name.replace('-', "_")
}

/// The name of the constant of an element.
pub(crate) fn constant(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

fn ried_module(ried: &GeneratedRied<'_>) -> String {
    let GeneratedRied { id, name, exports } = ried;
    let exports: Vec<_> = exports
        .iter()
        .map(|export| format!("({:?}, {:#x})", export.name, export.signature))
        .collect();
    format!(
        "\n/// The ried `{name}`.\n\
         pub mod {module} {{\n\
         \x20   /// The id of the ried in its package.\n\
         \x20   pub const ID: u16 = {id};\n\
         \x20   /// The name of the ried.\n\
         \x20   pub const NAME: &str = {name:?};\n\
         \x20   /// The ried: what a program loads into a host.\n\
         \x20   pub static {constant}: ::jam::RiedElement = ::jam::RiedElement {{\n\
         \x20       package: &super::PACKAGE,\n\
         \x20       id: ID,\n\
         \x20       name: NAME,\n\
         \x20       exports: &[{exports}],\n\
         \x20   }};\n\
         }}\n",
        module = module_name(name),
        constant = constant(name),
        exports = exports.join(", "),
    )
}

/// The Local Function of a jam in C: what its object in the library is for Rust, and the value.
fn c_local(jam: &Generated<'_>, library: &str) -> (String, String) {
    let prefix = prefix(jam.blob);
    let (mut slots, mut imports) = (String::new(), String::new());
    for (at, Imported { name, signature, .. }) in jam.imports.iter().enumerate() {
        write!(
            slots,
            "            #[link_name = \"{prefix}_{name}\"]\n\
             \x20           static SLOT_{at}: ::jam::ImportSlot;\n"
        )
        .expect("writing to text");
        write!(
            imports,
            "&::jam::LocalImport::new({name:?}, {signature:#x}, unsafe {{ &SLOT_{at} }}), "
        )
        .expect("writing to text");
    }
    let items = format!(
        "    mod c {{\n\
         \x20       // SAFETY: what `jam.h` defines, in the object of this jam.\n\
         \x20       #[link(name = {library:?}, kind = \"static\")]\n\
         \x20       unsafe extern \"C-unwind\" {{\n\
         \x20           #[link_name = \"{prefix}\"]\n\
         \x20           pub(super) fn entry(call: *mut ::jam::Call) -> u32;\n\
         {slots}\
         \x20       }}\n\
         \x20       // SAFETY: only the addresses of slots are taken, which are those of `jam.h`: a pointer each.\n\
         \x20       pub(super) static IMPORTS: &[&::jam::LocalImport] = &[{imports}];\n\
         \x20   }}\n\
         \x20   /// # Safety\n\
         \x20   /// As `jam::Call` says, and every import is resolved.\n\
         \x20   unsafe fn enter(call: *mut ::jam::Call) -> u32 {{\n\
         \x20       // SAFETY: the receiver compared the types, as the caller promises.\n\
         \x20       unsafe {{ c::entry(call) }}\n\
         \x20   }}\n"
    );
    let local = "Some(::jam::LocalFunction { entry: enter, imports: c::IMPORTS })";
    (items, local.to_owned())
}

/// The items of a jam in C: the type of its property.
fn c_items(shape: &Shape, property: &str) -> String {
    let Some((name, _)) = &shape.property else { return String::new() };
    format!(
        "    ::jam::property! {{\n\
         \x20       /// The property of the jam.\n\
         \x20       #[allow(non_camel_case_types)]\n\
         \x20       pub struct {name} = {property:?};\n\
         \x20   }}\n"
    )
}

fn module(jam: &Generated<'_>, library: Option<&str>) -> String {
    let Generated { id, name, signature, property, path, shape, .. } = jam;
    let types = types(shape);
    let (local, source) = match path {
        None => {
            let items = c_items(shape, property);
            match library {
                None => ("None".to_owned(), items),
                Some(library) => {
                    let (of_local, local) = c_local(jam, library);
                    (local, items + &of_local)
                }
            }
        }
        Some(path) => {
            let imports = if shape.has_imports { "source::jam_imports::ALL" } else { "&[]" };
            let call = call(name, shape);
            let source = format!(
                "    #[path = {path:?}]\n\
                 \x20   #[allow(dead_code, unreachable_pub)]\n\
                 \x20   mod source;\n\
                 \x20   pub use source::*;\n\
                 \x20   /// # Safety\n\
                 \x20   /// As `jam::Call` says, and every import is resolved.\n\
                 \x20   unsafe fn enter(call: *mut ::jam::Call) -> u32 {{\n\
                 \x20       // SAFETY: the receiver compared the types, as the caller promises.\n\
                 \x20       unsafe {{ ::jam::entry::Types::<{types}>::enter(call, {call}) }}\n\
                 \x20   }}\n"
            );
            let local =
                format!("Some(::jam::LocalFunction {{ entry: enter, imports: {imports} }})");
            (local, source)
        }
    };
    let constant = constant(name);
    let local = local.replace("source::jam_imports", "self::source::jam_imports");
    format!(
        "\n/// The jam `{name}`.\n\
         #[allow(unsafe_code, unused_variables)]\n\
         pub mod {name} {{\n\
         {source}\
         \x20   /// The id of the jam in its package.\n\
         \x20   pub const ID: u16 = {id};\n\
         \x20   /// The name of the jam.\n\
         \x20   pub const NAME: &str = {name:?};\n\
         \x20   /// The jam, without its types.\n\
         \x20   pub static ELEMENT: ::jam::Element = ::jam::Element {{\n\
         \x20       package: &super::PACKAGE,\n\
         \x20       id: ID,\n\
         \x20       name: NAME,\n\
         \x20       signature: {signature:#x},\n\
         \x20       property: {property:?},\n\
         \x20       local: {local},\n\
         \x20   }};\n\
         \x20   /// The jam with its types: what a program sends.\n\
         \x20   pub const {constant}: ::jam::Jam<{types}> = ::jam::Jam::new(&ELEMENT);\n\
         }}\n"
    )
}
