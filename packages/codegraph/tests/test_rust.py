"""What is understood of Rust."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.codegraph.tests.graphs import analysed, parsed

CARGO = '[package]\nname = "my-shop"\nversion = "0.1.0"\n'


def test_a_function_of_the_same_file_is_called_on_its_line() -> None:
    seen = analysed({"src/lib.rs": "fn one() {\n    two();\n}\nfn two() {}\n"})
    assert seen.calls == {("src/lib.rs:one", "src/lib.rs:two", 2)}


def test_modules_are_files_beside_and_below() -> None:
    seen = analysed(
        {
            "src/lib.rs": "mod cart;\nmod tax;\nfn run() { cart::items::count(); tax::rate(); }\n",
            "src/cart/mod.rs": "pub mod items;\n",
            "src/cart/items.rs": "pub fn count() {}\n",
            "src/tax.rs": "mod eu;\npub fn rate() { eu::vat() }\n",
            "src/tax/eu.rs": "pub fn vat() { super::rate(); super::super::run(); crate::run() }\n",
        }
    )
    assert seen.callees == {
        ("src/lib.rs:run", "src/cart/items.rs:count"),
        ("src/lib.rs:run", "src/tax.rs:rate"),
        ("src/tax.rs:rate", "src/tax/eu.rs:vat"),
        ("src/tax/eu.rs:vat", "src/tax.rs:rate"),
        ("src/tax/eu.rs:vat", "src/lib.rs:run"),
    }
    assert ("src/lib.rs", "src/tax.rs") in seen.imports
    assert ("src/tax.rs", "src/tax/eu.rs") in seen.imports


def test_use_trees_bring_each_of_their_names() -> None:
    seen = analysed(
        {
            "src/lib.rs": "pub mod a;\npub mod b;\n",
            "src/a.rs": "pub fn one() {}\npub fn two() {}\npub mod deep { pub fn three() {} }\n",
            "src/b.rs": (
                "use crate::{a::{self, one, two as second}, a::deep::three};\n"
                "fn run() { one(); second(); three(); a::two(); }\n"
            ),
        }
    )
    assert seen.callees == {
        ("src/b.rs:run", "src/a.rs:one"),
        ("src/b.rs:run", "src/a.rs:two"),
        ("src/b.rs:run", "src/a.rs:deep.three"),
    }
    assert ("src/b.rs", "src/a.rs") in seen.imports


def test_reexports_and_globs_are_followed_to_the_definition() -> None:
    seen = analysed(
        {
            "src/lib.rs": (
                "mod inner;\npub mod user;\npub use inner::*;\npub use inner::Tool as T;\n"
            ),
            "src/inner.rs": "pub struct Tool;\nimpl Tool { pub fn new() -> Self { Tool } }\n"
            "pub fn help() {}\n",
            "src/user.rs": "use crate::T;\nuse super::help;\nfn run() { T::new(); help(); }\n",
        }
    )
    assert seen.callees == {
        ("src/user.rs:run", "src/inner.rs:Tool.new"),
        ("src/user.rs:run", "src/inner.rs:help"),
    }
    assert {target for path, target in seen.imports if path == "src/user.rs"} == {"src/inner.rs"}


def test_a_module_inside_a_file_sees_its_own_names_first() -> None:
    seen = analysed(
        {
            "src/lib.rs": (
                "fn parse() {}\nfn other() {}\n"
                "mod tests {\n    use super::*;\n    fn parse() {\n"
                "        super::parse();\n        self::check();\n        other();\n    }\n"
                "    fn check() {\n        parse()\n    }\n}\n"
            )
        }
    )
    assert seen.calls == {
        ("src/lib.rs:tests.parse", "src/lib.rs:parse", 6),
        ("src/lib.rs:tests.parse", "src/lib.rs:tests.check", 7),
        ("src/lib.rs:tests.parse", "src/lib.rs:other", 8),
        ("src/lib.rs:tests.check", "src/lib.rs:tests.parse", 11),
    }


def test_methods_are_found_through_self_and_associated_functions_through_the_type() -> None:
    seen = analysed(
        {
            "src/lib.rs": (
                "pub struct Cart { n: u8 }\n"
                "impl Cart {\n    pub fn new() -> Self { Self { n: Self::zero() } }\n"
                "    fn zero() -> u8 { 0 }\n    fn add(&self) { self.check() }\n"
                "    fn check(&self) {}\n}\n"
                "fn check() {}\nfn run() { Cart::new().add() }\n"
            )
        }
    )
    assert seen.calls == {
        ("src/lib.rs:Cart.new", "src/lib.rs:Cart", 3),
        ("src/lib.rs:Cart.new", "src/lib.rs:Cart.zero", 3),
        ("src/lib.rs:Cart.add", "src/lib.rs:Cart.check", 5),
        ("src/lib.rs:run", "src/lib.rs:Cart.new", 9),
        ("src/lib.rs:run", "src/lib.rs:Cart.add", 9),
    }


def test_an_impl_in_another_file_adds_to_the_type() -> None:
    seen = analysed(
        {
            "src/lib.rs": "mod more;\npub struct Cart;\nfn run(c: &Cart) { c.extra() }\n",
            "src/more.rs": "use super::Cart;\nimpl Cart { pub fn extra(&self) {} }\n",
        }
    )
    assert seen.callees == {("src/lib.rs:run", "src/more.rs:Cart.extra")}


def test_traits_are_bases_with_methods_of_their_own() -> None:
    seen = analysed(
        {
            "src/lib.rs": (
                "trait Named { fn name(&self) -> u8; fn twice(&self) { self.name(); } }\n"
                "trait Tagged: Named {}\n"
                "struct A;\nimpl Named for A { fn name(&self) -> u8 { 1 } }\n"
                "fn run(a: A, d: &dyn Named, i: impl Tagged) { a.twice(); a.name(); d.name(); "
                "i.name() }\n"
                "fn generic<T: Named>(t: T) where T: Named { t.name() }\n"
            )
        }
    )
    assert seen.inherits == {
        ("src/lib.rs:A", "src/lib.rs:Named"),
        ("src/lib.rs:Tagged", "src/lib.rs:Named"),
    }
    assert seen.callees == {
        ("src/lib.rs:Named.twice", "src/lib.rs:Named.name"),
        ("src/lib.rs:run", "src/lib.rs:Named.twice"),
        ("src/lib.rs:run", "src/lib.rs:A.name"),
        ("src/lib.rs:run", "src/lib.rs:Named.name"),
        ("src/lib.rs:generic", "src/lib.rs:Named.name"),
    }


def test_variables_and_fields_have_the_types_that_are_written_or_made() -> None:
    seen = analysed(
        {
            "src/lib.rs": (
                "pub struct Engine;\n"
                "impl Engine { fn start(&self) {} fn make() -> Engine { Engine } }\n"
                "pub struct Car { engine: Box<Engine>, spare: Vec<Engine>, old: Option<Engine> }\n"
                "impl Car {\n    fn go(&self) {\n        self.engine.start();\n"
                "        for e in &self.spare { e.start() }\n"
                "        if let Some(e) = &self.old { e.start() }\n"
                "        self.old.as_ref().unwrap().start();\n        self.spare[0].start();\n"
                "        let e = Engine::make();\n        e.start();\n    }\n}\n"
            )
        }
    )
    assert {line for _, callee, line in seen.calls if callee.endswith("start")} == {
        6, 7, 8, 9, 10, 12,
    }  # fmt: skip
    assert seen.counts.unresolved == 0


def test_the_methods_of_a_wrapper_are_not_those_of_what_is_in_it() -> None:
    seen = analysed(
        {
            "src/lib.rs": (
                "use std::sync::Arc;\npub struct A;\n"
                "impl A { fn map(&self) {} fn go(&self) {} }\n"
                "impl Clone for A { fn clone(&self) -> A { A } }\n"
                "fn find() -> Option<A> { None }\n"
                "struct B { a: Arc<A>, plain: A }\n"
                "impl B { fn f(&self) { self.a.clone(); self.plain.clone(); self.a.go() } }\n"
                "fn run(x: Option<A>, y: &A) { x.map(); find().map(); y.map(); find()?.go(); }\n"
            )
        }
    )
    assert seen.callees == {
        ("src/lib.rs:B.f", "src/lib.rs:A.clone"),
        ("src/lib.rs:B.f", "src/lib.rs:A.go"),
        ("src/lib.rs:run", "src/lib.rs:find"),
        ("src/lib.rs:run", "src/lib.rs:A.map"),
        ("src/lib.rs:run", "src/lib.rs:A.go"),
    }
    assert len([one for one in seen.calls if one[1].endswith("clone")]) == 1
    assert len(seen.resolution.calls["src/lib.rs"]) == 6  # find() twice, and each other once


def test_a_name_that_is_let_anew_is_another_variable() -> None:
    seen = analysed(
        {
            "src/lib.rs": (
                "struct A;\nstruct B;\n"
                "impl A { fn go(&self) -> B { B } }\nimpl B { fn go(&self) {} }\n"
                "fn run() {\n    let x: A = make();\n    let x = x.go();\n    x.go();\n}\n"
            )
        }
    )
    assert seen.calls == {
        ("src/lib.rs:run", "src/lib.rs:A.go", 7),
        ("src/lib.rs:run", "src/lib.rs:B.go", 8),
    }


def test_the_variants_of_an_enum_make_the_enum() -> None:
    seen = analysed(
        {
            "src/lib.rs": (
                "enum E { A, B(u8), C { x: u8 } }\nimpl E { fn go(&self) {} }\n"
                "fn run() { E::B(1); E::C { x: 1 }; let e = E::A; e.go(); E::B(2).go() }\n"
            )
        }
    )
    assert seen.callees == {
        ("src/lib.rs:run", "src/lib.rs:E"),
        ("src/lib.rs:run", "src/lib.rs:E.go"),
    }
    assert seen.counts.unresolved == 0


def test_crates_of_a_workspace_and_a_package_with_a_program_find_each_other() -> None:
    seen = analysed(
        {
            "shop/Cargo.toml": CARGO,
            "shop/src/lib.rs": "pub fn open() {}\n",
            "shop/src/main.rs": "use my_shop::open;\nfn main() { open(); my_shop::open(); }\n",
            "shop/tests/it.rs": "fn check() { my_shop::open() }\n",
            "cli/Cargo.toml": '[package]\nname = "cli"\n',
            "cli/src/main.rs": "fn main() { my_shop::open(); }\n",
        }
    )
    assert seen.callees == {
        ("shop/src/main.rs:main", "shop/src/lib.rs:open"),
        ("shop/tests/it.rs:check", "shop/src/lib.rs:open"),
        ("cli/src/main.rs:main", "shop/src/lib.rs:open"),
    }
    assert ("cli/src/main.rs", "shop/src/lib.rs") in seen.imports


def test_other_crates_macros_and_the_prelude_are_external() -> None:
    seen = analysed(
        {
            "src/lib.rs": (
                "use serde::Serialize;\nuse log::info;\nuse std::collections::HashMap;\n"
                'fn run(m: HashMap<u8, u8>) {\n    println!("{}", hidden());\n    info!("x");\n'
                "    serde_json::to_string(&1);\n    m.get(&1);\n    Some(1);\n"
                "    std::mem::drop(m);\n"
                "    let v: Vec<u8> = Vec::new();\n    v.len();\n}\n"
            )
        }
    )
    assert seen.counts.unresolved == 0
    assert seen.counts.resolved == 0
    assert {target for _, target in seen.imports} == {"serde", "log", "std", "serde_json"}


def test_a_type_that_is_found_nowhere_comes_from_the_crate_that_everything_is_imported_of() -> None:
    source = "use outer::prelude::*;\nfn run(b: &Bound) { b.go() }\n"
    made = "macro_rules! make { () => { struct Bound; } }\nmake!();\n"

    assert analysed({"src/lib.rs": source}).counts.external == 1
    assert analysed({"src/lib.rs": made + source}).counts.unresolved == 1
    assert analysed({"src/lib.rs": source.replace("outer", "self")}).counts.unresolved == 1


def test_slices_and_strings_have_methods_of_their_own() -> None:
    seen = analysed(
        {"src/lib.rs": 'fn run(a: &[u8], b: [u8; 2]) { a.len(); b.len(); "x".len(); }\n'}
    )
    assert (seen.counts.external, seen.counts.unresolved) == (3, 0)


def test_macros_of_the_crate_are_functions_with_an_exclamation_mark() -> None:
    seen = analysed(
        {
            "src/lib.rs": "#[macro_use]\nmod macros;\nmod user;\n",
            "src/macros.rs": "macro_rules! write { () => {} }\nmacro_rules! make { () => {} }\n",
            "src/user.rs": "fn make() {}\nfn run() {\n    make!();\n    make();\n}\n",
        }
    )
    assert seen.calls == {
        ("src/user.rs:run", "src/macros.rs:make!", 3),
        ("src/user.rs:run", "src/user.rs:make", 4),
    }


def test_what_is_not_known_is_not_guessed() -> None:
    seen = analysed(
        {
            "src/lib.rs": (
                "struct A;\nimpl A { fn go(&self) {} }\nfn go() {}\n"
                "fn run<T>(x: T, f: fn()) { x.go(); f(); y.go(); |z| z.go(); missing() }\n"
                "fn f() {}\n"
            )
        }
    )
    assert seen.callees == set()
    assert seen.counts.unresolved == 5


def test_a_closure_with_a_name_is_a_function() -> None:
    seen = analysed(
        {
            "src/lib.rs": (
                "fn g() {}\nfn run() {\n    let h = |x: u8| g();\n    h(1);\n    all(|| g());\n}\n"
            )
        }
    )
    assert seen.calls == {
        ("src/lib.rs:run.h", "src/lib.rs:g", 3),
        ("src/lib.rs:run", "src/lib.rs:run.h", 4),
        ("src/lib.rs:run", "src/lib.rs:g", 5),
    }


def test_a_module_by_its_path_attribute_and_one_that_is_missing() -> None:
    seen = analysed(
        {
            "src/lib.rs": (
                '#[path = "odd/place.rs"]\nmod here;\nmod gone;\nfn f() { here::g(); gone::h() }\n'
            ),
            "src/odd/place.rs": "pub fn g() {}\n",
        }
    )
    assert seen.callees == {("src/lib.rs:f", "src/odd/place.rs:g")}
    assert seen.imports == {("src/lib.rs", "src/odd/place.rs")}
    assert seen.counts.unresolved == 1


def test_declarations_have_their_kinds_lines_and_signatures_without_literals() -> None:
    facts = parsed(
        "src/lib.rs",
        "pub struct S<T> {\n    a: T,\n}\nunion U { a: u8 }\ntype Bytes = [u8; 4096];\n"
        "impl<T> S<T> {\n    pub async fn f(&self, a: [u8; 16]) -> Result<T, Error> {\n"
        "        1\n    }\n}\n",
    )
    shown = [
        (one.kind, one.qualified, one.line, one.end_line, one.signature)
        for one in facts.declarations
    ]
    assert shown == [
        ("class", "S", 1, 3, "struct S<T>"),
        ("class", "U", 4, 4, "union U"),
        ("type", "Bytes", 5, 5, "type Bytes"),
        ("function", "S.f", 7, 9, "f(&self, a: [u8; _]) -> Result<T, Error>"),
    ]


@pytest.mark.parametrize(
    ("source", "whole", "names", "calls"),
    [
        ("fn f() { " + "g(" * 20_000 + ")" * 20_000 + "}", True, ["f"], 20_000),
        ("type A = " + "Vec<" * 20_000 + "u8" + ">" * 20_000 + ";", True, ["A"], 0),
        ("fn f() { a" + ".b()" * 5_000 + "}", True, ["f"], 5_000),
        ("use " + "a::{" * 2_000 + "b" + "}" * 2_000 + ";", True, [], 0),
        ("mod a {" * 2_000, False, [], 0),
        ("fn a() {" * 2_000, False, [], 0),
        ("impl A { fn b() {" * 2_000, False, [], 0),
        ("fn f() { " + "let x = || {" * 2_000 + "}" * 2_000, False, [], 0),
    ],
    ids=["calls", "types", "chain", "uses", "modules", "functions", "impls", "closures"],
)
def test_code_that_nests_without_end_is_read_all_the_same(
    source: str, whole: bool, names: list[str], calls: int
) -> None:
    facts = parsed("a.rs", source)
    assert facts.broken is not whole
    assert [declaration.name for declaration in facts.declarations] == names
    assert len(facts.calls) == calls


_VOCABULARY = """
    fn f ( ) { } struct S enum impl for trait use a :: b * ; mod let = x . self Self super crate
    match => if Some(x) | & 'a < > # [ ] ! macro_rules $x -> where T : , ? async
"""
_WORDS = st.lists(st.sampled_from(_VOCABULARY.split()), max_size=40).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(), _WORDS))
def test_any_text_has_facts(source: str) -> None:
    assert parsed("src/lib.rs", source.encode("utf-8", "replace")).language == "rust"


def test_of_items_that_cfg_chooses_from_none_is_certain() -> None:
    for one, other, call in (
        ("fn pick() {}", "fn pick() {}", "pick()"),
        ("mod pick { pub fn it() {} }", "mod pick { pub fn it() {} }", "pick::it()"),
        ("struct Pick;", "struct Pick { size: u8 }", "Pick { size: 1 }"),
        ("macro_rules! pick { () => {} }", "macro_rules! pick { () => { 1 } }", "pick!()"),
    ):
        seen = analysed(
            {
                "src/lib.rs": f"#[cfg(unix)]\n{one}\n#[cfg(not(unix))]\n// otherwise\n"
                f"#[inline]\n{other}\nfn run() {{ {call}; }}\n"
            }
        )
        assert seen.calls == set(), call
        assert seen.counts.unresolved == 1


def test_of_methods_that_cfg_chooses_from_none_is_certain() -> None:
    for methods in (
        "impl T {\n#[cfg(unix)]\nfn pick(&self) {}\n#[cfg(windows)]\nfn pick(&self) {}\n}",
        "#[cfg(unix)]\nimpl T { fn pick(&self) {} }\n#[cfg(windows)]\nimpl T { fn pick(&self) {} }",
    ):
        seen = analysed({"src/lib.rs": f"struct T;\n{methods}\nfn run(t: &T) {{ t.pick(); }}\n"})
        assert seen.calls == set(), methods


def test_an_item_under_cfg_that_nothing_rivals_is_found() -> None:
    seen = analysed({"src/lib.rs": "#[cfg(unix)]\nfn pick() {}\nfn run() { pick(); }\n"})
    assert seen.calls == {("src/lib.rs:run", "src/lib.rs:pick", 3)}


def test_a_function_of_several_traits_is_not_guessed_but_one_of_the_type_itself_is_meant() -> None:
    source = (
        "struct T;\nimpl From<A> for T { fn from(a: A) -> T { T } }\n"
        "impl From<B> for T { fn from(b: B) -> T { T } }\n"
        "impl Show for T { fn show(&self) {} }\nimpl T { fn show(&self) {} }\n"
        "fn run(t: &T) {\n    T::from(1);\n    t.show();\n}\n"
    )
    seen = analysed({"src/lib.rs": source})
    assert [(caller, line) for caller, _, line in seen.calls] == [("src/lib.rs:run", 8)]
    (call,) = seen.resolution.calls["src/lib.rs"]
    assert call.callee.declaration.line == 5


def test_which_function_a_mutable_variable_holds_is_not_known() -> None:
    for body, expected in (
        ("let f = one; f();", 1),
        ("let mut f = one; if x { f = two; } f();", 0),
    ):
        source = f"fn one() {{}}\nfn two() {{}}\nfn run(x: bool) {{ {body} }}\n"
        assert len(analysed({"src/lib.rs": source}).calls) == expected
