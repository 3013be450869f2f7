//! [`Symbols`]: what a jam's imports resolve to at this receiver, by name and signature.
//!
//! Layers, the first that has the name with the signature counts:
//! 1. what was loaded into the running program, newest first ([`Symbols::add_layer`]);
//! 2. the program's own exports (`export.rs`);
//! 3. the functions that every receiver has (`c.rs`).
//!
//! Adding or removing a layer begins a new *generation*. A linked jam knows the generation of its
//! imports, and is linked again before it next runs if they resolve to something else.

#[allow(unsafe_code)]
pub(crate) mod c;
#[allow(unsafe_code)]
pub(crate) mod export;

use std::collections::HashMap;

use parking_lot::RwLock;
use primitive::sync::{AtomicU64, Ordering};

use crate::error::{Refusal, SignatureHash};
use crate::symbols::c::C_SIGNATURE;
use crate::symbols::export::{Export, exports};

/// The layer of functions that every receiver has.
const C_LAYER: u64 = 0;
/// The layer of the program's exports; loaded ones have greater numbers, newer ones the greatest.
const PROGRAM_LAYER: u64 = 1;

/// A function that is loaded into a running program, for jams to call.
#[derive(Clone, Debug)]
pub struct LoadedFunction {
    /// Its name.
    pub name: String,
    /// The hash of its types.
    pub signature: u64,
    /// Its types as text, such as `(&mut Table, u64) -> u64`, for errors; may be empty.
    pub types: &'static str,
    /// The address of its form for injected code, which does not unwind: it ends its caller with
    /// [`guard`](crate::guard).
    pub injected: usize,
    /// The address of its form for Local Functions, which unwinds if it panics.
    pub local: usize,
}

/// What imports resolve to.
pub struct Symbols {
    generation: AtomicU64,
    /// By name: the newest layer first.
    names: RwLock<HashMap<Box<str>, Vec<Symbol>>>,
}

#[derive(Clone, Copy)]
struct Symbol {
    layer: u64,
    signature: u64,
    types: &'static str,
    injected: usize,
    local: usize,
}

impl Symbols {
    /// With what the program exports.
    ///
    /// # Panics
    /// If it exports two functions of one name with the same types.
    pub(crate) fn of_program() -> Self {
        Self::of(exports())
    }

    fn of(exports: &[Export]) -> Self {
        let mut names: HashMap<Box<str>, Vec<Symbol>> = HashMap::new();
        for export in exports {
            let (injected, local) = export.addresses();
            let (layer, signature, types) = (PROGRAM_LAYER, export.signature(), export.types());
            let symbol = Symbol { layer, signature, types, injected, local };
            let same_name = names.entry(export.name().into()).or_default();
            assert!(
                same_name.iter().all(|other| other.signature != signature),
                "two functions are exported to jams as `{}{types}`: each needs a name of its own",
                export.name(),
            );
            same_name.push(symbol);
        }
        for (name, address) in c::table() {
            let symbol = Symbol {
                layer: C_LAYER,
                signature: C_SIGNATURE,
                types: "",
                injected: address,
                local: address,
            };
            names.entry(name.into()).or_default().push(symbol);
        }
        Self { generation: AtomicU64::new(PROGRAM_LAYER), names: RwLock::new(names) }
    }

    /// The number of the last change.
    #[inline(always)]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Which of these functions override none, although one of other types has their name: a line for each.
    pub(crate) fn beside_others(&self, functions: &[LoadedFunction]) -> Vec<String> {
        let names = self.names.read();
        let line = |function: &LoadedFunction| {
            let LoadedFunction { name, signature, types, .. } = function;
            let others = names.get(name.as_str())?;
            let other =
                others.first().filter(|_| others.iter().all(|o| o.signature != *signature))?;
            Some(format!(
                "`{name}{types}` does not override `{name}{}`, whose types differ: jams that import \
                 the latter still call it",
                other.types,
            ))
        };
        functions.iter().filter_map(line).collect()
    }

    /// Adds functions, which override all earlier ones of the same names. The result is their number for
    /// [`remove_layer`](Self::remove_layer).
    ///
    /// # Safety
    /// Each `injected` is the address of an `extern "C"` function with that signature, which does not
    /// unwind, each `local` that of an `extern "C-unwind"` one, which does not leave a jam; they stay
    /// callable as long as any jam may run that was linked while they were there.
    #[allow(unsafe_code)]
    pub unsafe fn add_layer(&self, functions: &[LoadedFunction]) -> u64 {
        let mut names = self.names.write();
        let layer = self.generation.load(Ordering::Relaxed) + 1;
        for function in functions {
            let LoadedFunction { signature, types, injected, local, .. } = *function;
            let symbol = Symbol { layer, signature, types, injected, local };
            names.entry(function.name.as_str().into()).or_default().insert(0, symbol);
        }
        self.generation.store(layer, Ordering::Release);
        layer
    }

    /// Removes the functions of a layer. Jams that call them are linked again before their next run; a
    /// run in progress keeps the functions that it was linked with.
    pub fn remove_layer(&self, layer: u64) {
        if layer <= PROGRAM_LAYER {
            return;
        }
        let mut names = self.names.write();
        names.retain(|_, symbols| {
            symbols.retain(|symbol| symbol.layer != layer);
            !symbols.is_empty()
        });
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The address for injected code of each import, in their order; with the generation that this
    /// holds for.
    pub(crate) fn resolve<'n>(
        &self,
        imports: impl Iterator<Item = (&'n str, u64)>,
        mut found: impl FnMut(usize),
    ) -> Result<u64, Refusal> {
        self.each(imports, |symbol| found(symbol.injected))
    }

    /// As [`resolve_local`](Self::resolve_local), of one function: its address.
    pub(crate) fn resolve_one(&self, name: &str, signature: u64) -> Result<usize, Refusal> {
        let mut found = 0;
        self.resolve_local([(name, signature)].into_iter(), |address| found = address)?;
        Ok(found)
    }

    /// The same for Local Functions, and for rieds.
    pub(crate) fn resolve_local<'n>(
        &self,
        imports: impl Iterator<Item = (&'n str, u64)>,
        mut found: impl FnMut(usize),
    ) -> Result<u64, Refusal> {
        self.each(imports, |symbol| found(symbol.local))
    }

    fn each<'n>(
        &self,
        imports: impl Iterator<Item = (&'n str, u64)>,
        mut found: impl FnMut(Symbol),
    ) -> Result<u64, Refusal> {
        let names = self.names.read();
        for (name, signature) in imports {
            found(find(&names, name, signature)?);
        }
        Ok(self.generation.load(Ordering::Acquire))
    }
}

fn find(
    names: &HashMap<Box<str>, Vec<Symbol>>,
    name: &str,
    signature: u64,
) -> Result<Symbol, Refusal> {
    let symbols = names.get(name).map_or(&[][..], Vec::as_slice);
    let found = symbols.iter().find(|symbol| symbol.signature == signature);
    found.copied().ok_or_else(|| match symbols.first() {
        Some(other) => Refusal::WrongSignature {
            symbol: name.to_owned(),
            wanted: SignatureHash(signature),
            found: SignatureHash(other.signature),
            wanted_types: String::new(),
            found_types: other.types.to_owned(),
        },
        None => {
            let signature = SignatureHash(signature);
            Refusal::MissingSymbol { symbol: name.to_owned(), signature, types: String::new() }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(name: &str, signature: u64, address: usize) -> LoadedFunction {
        let (name, types) = (name.to_owned(), "(u64)");
        LoadedFunction { name, signature, types, injected: address, local: address + 1 }
    }

    fn resolve(symbols: &Symbols, name: &str, signature: u64) -> Result<usize, Refusal> {
        let mut address = 0;
        symbols.resolve([(name, signature)].into_iter(), |found| address = found)?;
        Ok(address)
    }

    #[test]
    #[allow(unsafe_code)]
    fn the_newest_layer_with_the_signature_counts() {
        let symbols = Symbols::of_program();
        let missing = Refusal::MissingSymbol {
            symbol: "f".into(),
            signature: SignatureHash(1),
            types: String::new(),
        };
        assert_eq!(resolve(&symbols, "f", 1), Err(missing.clone()));
        let before = symbols.generation();
        // SAFETY: nothing calls these addresses.
        let old = unsafe { symbols.add_layer(&[loaded("f", 1, 100), loaded("memcpy", 0, 7)]) };
        // SAFETY: nothing calls this address.
        let new = unsafe { symbols.add_layer(&[loaded("f", 2, 200)]) };
        assert!(before < old && old < new && symbols.generation() == new);
        assert_eq!(resolve(&symbols, "f", 1), Ok(100), "an older one with the right signature");
        assert_eq!(resolve(&symbols, "f", 2), Ok(200));
        let mut local = 0;
        let generation = symbols.resolve_local([("f", 2)].into_iter(), |address| local = address);
        assert_eq!((generation, local), (Ok(new), 201), "the form that unwinds");
        assert_eq!(resolve(&symbols, "memcpy", 0), Ok(7));
        let wrong = Refusal::WrongSignature {
            symbol: "f".into(),
            wanted: SignatureHash(3),
            found: SignatureHash(2),
            wanted_types: String::new(),
            found_types: "(u64)".into(),
        };
        assert_eq!(resolve(&symbols, "f", 3), Err(wrong));
        symbols.remove_layer(old);
        assert!(symbols.generation() > new);
        assert!(matches!(resolve(&symbols, "f", 1), Err(Refusal::WrongSignature { .. })));
        assert!(resolve(&symbols, "memcpy", 0).is_ok_and(|address| address > 4096));
        symbols.remove_layer(new);
        symbols.remove_layer(PROGRAM_LAYER);
        assert_eq!(resolve(&symbols, "f", 1), Err(missing));
        assert!(resolve(&symbols, "strlen", 0).is_ok());
    }

    #[test]
    #[allow(unsafe_code)]
    fn a_function_of_other_types_is_said_to_override_nothing() {
        let symbols = Symbols::of_program();
        let function = |signature, types| LoadedFunction { types, ..loaded("fee", signature, 100) };
        let [small, large] = [function(1, "(i32)"), function(2, "(i64)")];
        assert!(symbols.beside_others(std::slice::from_ref(&small)).is_empty(), "the first");
        // SAFETY: nothing calls these addresses.
        unsafe { symbols.add_layer(std::slice::from_ref(&small)) };
        assert!(symbols.beside_others(std::slice::from_ref(&small)).is_empty(), "it overrides");
        let lines = symbols.beside_others(&[small, large.clone()]);
        assert!(lines[0].starts_with("`fee(i64)` does not override `fee(i32)`"), "{lines:?}");
        assert_eq!(lines.len(), 1);
        // SAFETY: nothing calls this address.
        unsafe { symbols.add_layer(std::slice::from_ref(&large)) };
        assert!(symbols.beside_others(&[large]).is_empty());
    }

    #[test]
    #[should_panic = "two functions are exported to jams as `fee(i64)`: each needs a name of its own"]
    #[allow(unsafe_code)]
    fn two_exports_of_one_name_and_the_same_types_are_refused() {
        let export = |signature, types| {
            // SAFETY: nothing calls these addresses.
            unsafe { Export::new("fee", signature, types, std::ptr::null(), std::ptr::null()) }
        };
        Symbols::of(&[export(1, "(i32)"), export(2, "(i64)"), export(2, "(i64)")]);
    }
}
