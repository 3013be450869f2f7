//! What a Rust source says about its jam, before it is compiled: the types of its entry, and where its
//! statics are.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, FnArg, Item, Lit, ReturnType, Type, Visibility};

use crate::error::{Error, Site};

/// A part of the entry's signature, each at most once and in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Context,
    Property,
    Args,
    Payload,
}

/// The types of a jam in Rust, as its author writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) has_context: bool,
    /// The type of the property, and whether the jam may change it.
    pub(crate) property: Option<(String, bool)>,
    pub(crate) args: Option<String>,
    pub(crate) element: Option<String>,
    pub(crate) result: Option<String>,
    pub(crate) has_imports: bool,
}

/// A Rust source.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) shape: Shape,
    /// The names of what the file's own `import!` declares.
    pub(crate) imports: Vec<String>,
    /// Names of statics, each with line and column of its declaration.
    statics: Vec<(String, (u32, u32))>,
}

impl Source {
    /// Reads the source of the jam `name`, whose author calls the file `file`.
    pub(crate) fn read(text: &str, name: &str, file: &str) -> Result<Self, Error> {
        let parsed = syn::parse_file(text).map_err(|error| wrong(file, error.span(), error))?;
        let mut declared = Declared::default();
        declared.add(&parsed.items, file)?;
        let entry = parsed.items.iter().find_map(|item| match item {
            Item::Fn(function) if function.sig.ident == name => Some(function),
            _ => None,
        });
        let Some(entry) = entry else {
            let message =
                format!("no function `{name}`: expected `pub fn {name}`, named as its file");
            let site = Site { file: file.to_owned(), line: 0, column: 0 };
            return Err(Error::Source { site, message });
        };
        let shape = shape(entry, &declared, file)?;
        Ok(Self { shape, imports: declared.imports, statics: declared.statics })
    }

    /// Where the static with this name is declared.
    pub(crate) fn line_of(&self, name: &str) -> Option<(u32, u32)> {
        self.statics.iter().find(|(known, _)| known == name).map(|(_, place)| *place)
    }
}

fn wrong(file: &str, span: Span, message: impl ToString) -> Error {
    let start = span.start();
    let (line, column) = (start.line as u32, start.column as u32 + 1);
    let site = Site { file: file.to_owned(), line, column };
    Error::Source { site, message: message.to_string() }
}

/// What a file declares.
#[derive(Debug, Default)]
struct Declared {
    plain: Vec<String>,
    properties: Vec<String>,
    has_imports: bool,
    imports: Vec<String>,
    statics: Vec<(String, (u32, u32))>,
}

impl Declared {
    fn add(&mut self, items: &[Item], file: &str) -> Result<(), Error> {
        for item in items {
            match item {
                Item::Static(item) => {
                    let start = item.span().start();
                    let place = (start.line as u32, start.column as u32 + 1);
                    self.statics.push((item.ident.to_string(), place));
                }
                Item::Mod(item) => {
                    let mut inner = Self::default();
                    inner.add(item.content.as_ref().map_or(&[], |(_, items)| items), file)?;
                    self.statics.append(&mut inner.statics);
                }
                Item::Macro(item) => {
                    let name =
                        item.mac.path.segments.last().map(|segment| segment.ident.to_string());
                    match name.as_deref() {
                        Some("plain") => self.plain.append(&mut structs(&item.mac.tokens)),
                        Some("property") => self.properties.append(&mut structs(&item.mac.tokens)),
                        Some("import") if self.has_imports => {
                            let message = "second `import!`: expected one with all imports";
                            return Err(wrong(file, item.span(), message));
                        }
                        Some("import") => {
                            self.has_imports = true;
                            self.imports = functions(&item.mac.tokens);
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The names of the public structs that a macro's tokens declare.
fn structs(tokens: &TokenStream) -> Vec<String> {
    let trees: Vec<_> = tokens.clone().into_iter().collect();
    let named = trees.windows(3).filter(|trees| is(&trees[0], "pub") && is(&trees[1], "struct"));
    named.map(|trees| trees[2].to_string()).collect()
}

/// The names of the functions that a macro's tokens declare.
fn functions(tokens: &TokenStream) -> Vec<String> {
    let trees: Vec<_> = tokens.clone().into_iter().collect();
    trees.windows(2).filter(|trees| is(&trees[0], "fn")).map(|trees| trees[1].to_string()).collect()
}

fn is(tree: &TokenTree, word: &str) -> bool {
    matches!(tree, TokenTree::Ident(ident) if ident == word)
}

fn shape(entry: &syn::ItemFn, declared: &Declared, file: &str) -> Result<Shape, Error> {
    let signature = &entry.sig;
    let fail = |span, message: &str| Err(wrong(file, span, message));
    if !matches!(entry.vis, Visibility::Public(_)) {
        return fail(signature.span(), "private entry: expected `pub fn`");
    }
    if let Some(found) = &signature.asyncness {
        return fail(
            found.span(),
            "async entry: expected a plain function, since a jam may not wait",
        );
    }
    if let Some(found) = &signature.unsafety {
        return fail(found.span(), "unsafe entry: expected a safe function");
    }
    if let Some(found) = &signature.abi {
        return fail(found.span(), "entry with an ABI: expected a plain function");
    }
    if !signature.generics.params.is_empty() {
        return fail(
            signature.generics.span(),
            "generic entry: expected one without parameters in `<>`",
        );
    }
    let mut shape = Shape { has_imports: declared.has_imports, ..Shape::default() };
    let mut before = None;
    for input in &signature.inputs {
        let FnArg::Typed(parameter) = input else {
            return fail(
                input.span(),
                "`self` of an entry: expected a function outside of an impl",
            );
        };
        let part = shape.add(&parameter.ty, declared, file)?;
        if before.is_some_and(|before| before >= part) {
            return fail(
                parameter.span(),
                "parameter out of order: expected context, property, arguments, payload, each at \
                 most once",
            );
        }
        before = Some(part);
    }
    if let ReturnType::Type(_, result) = &signature.output {
        let is_unit = matches!(&**result, Type::Tuple(tuple) if tuple.elems.is_empty());
        if !is_unit {
            shape.result = Some(value(result, declared, file)?);
        }
    }
    Ok(shape)
}

impl Shape {
    /// Parameters and result as text, such as `(&mut Table, PutArgs, &[u8]) -> i64`.
    pub(crate) fn types(&self) -> String {
        let property = self
            .property
            .as_ref()
            .map(|(name, is_mutable)| format!("&{}{name}", if *is_mutable { "mut " } else { "" }));
        let element = self.element.as_ref().map(|element| format!("&[{element}]"));
        let parameters: Vec<_> =
            [property, self.args.clone(), element].into_iter().flatten().collect();
        let result = self.result.as_ref().map_or(String::new(), |result| format!(" -> {result}"));
        format!("({}){result}", parameters.join(", "))
    }

    /// Adds a parameter, and says which part it is.
    fn add(&mut self, parameter: &Type, declared: &Declared, file: &str) -> Result<Part, Error> {
        let Type::Reference(reference) = parameter else {
            self.args = Some(value(parameter, declared, file)?);
            return Ok(Part::Args);
        };
        let fail = |message: &str| Err(wrong(file, parameter.span(), message));
        if reference.lifetime.is_some() {
            return fail("reference with a lifetime: expected `&T` or `&mut T`");
        }
        let is_mutable = reference.mutability.is_some();
        match &*reference.elem {
            Type::Slice(_) if is_mutable => fail("payload that can change: expected `&[T]`"),
            Type::Slice(slice) => {
                self.element = Some(value(&slice.elem, declared, file)?);
                Ok(Part::Payload)
            }
            Type::Path(path) if path.path.segments.last().is_some_and(|s| s.ident == "Context") => {
                self.has_context = true;
                Ok(Part::Context)
            }
            other => {
                let name = text(other);
                if !declared.properties.contains(&name) {
                    return fail(&format!(
                        "unknown property type `{name}`: declare `pub struct {name}` with \
                         jam::property! in this file"
                    ));
                }
                self.property = Some((name, is_mutable));
                Ok(Part::Property)
            }
        }
    }
}

/// The text of a plain type.
fn value(found: &Type, declared: &Declared, file: &str) -> Result<String, Error> {
    const NUMBERS: [&str; 12] =
        ["u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize", "f32", "f64"];
    let name = text(found);
    if let Type::Array(array) = found {
        let element = value(&array.elem, declared, file)?;
        if let Expr::Lit(ExprLit { lit: Lit::Int(len), .. }) = &array.len
            && matches!(len.suffix(), "" | "usize")
            && let Ok(len) = len.base10_parse::<usize>()
        {
            return Ok(format!("[{element}; {len}]"));
        }
        return Err(wrong(file, array.len.span(), "length of an array: expected a literal"));
    }
    if NUMBERS.contains(&&name[..]) || declared.plain.contains(&name) {
        return Ok(name);
    }
    let message = format!(
        "type `{name}` in an entry: expected a number, an array, or a `pub struct` that jam::plain! \
         declares in this file"
    );
    Err(wrong(file, found.span(), message))
}

fn text(tokens: &impl ToTokens) -> String {
    tokens.to_token_stream().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_arrays() {
        let read = |len: &str| {
            let text = format!("pub fn bad(args: [u8; {len}]) {{}}");
            Source::read(&text, "bad", "bad.rs").map(|source| source.shape.args.unwrap_or_default())
        };
        for len in ["16", "0x10", "0b1_0000", "1_6", "16usize", "0x10_usize"] {
            assert_eq!(read(len).expect(len), "[u8; 16]");
        }
        for len in ["LEN", "LEN_usize", "8 + 8usize", "16u8", "0x1_0000_0000_0000_0000"] {
            let error = read(len).expect_err(len).to_string();
            assert_eq!(error, "bad.rs:1:23: length of an array: expected a literal", "{len}");
        }
    }
}
