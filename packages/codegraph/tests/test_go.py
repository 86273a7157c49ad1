"""What is understood of Go."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck_codegraph.languages.go_extraction import local_names
from packages.codegraph.tests.graphs import analysed, parsed

MOD = "module example.org/shop\n\ngo 1.22\n"


def test_a_function_of_the_same_file_is_called_on_its_line() -> None:
    seen = analysed({"a.go": "package a\n\nfunc one() {\n\ttwo()\n}\n\nfunc two() {}\n"})
    assert seen.calls == {("a.go:one", "a.go:two", 4)}


def test_a_function_of_the_same_package_is_found_in_another_file() -> None:
    seen = analysed(
        {
            "p/a.go": "package p\nfunc one() { two() }\n",
            "p/b.go": "package p\nfunc two() {}\n",
            "q/c.go": "package q\nfunc two() {}\n",
        }
    )
    assert seen.callees == {("p/a.go:one", "p/b.go:two")}


def test_a_name_that_two_files_of_a_package_declare_is_not_guessed() -> None:
    seen = analysed(
        {
            "p/a.go": "package p\nfunc one() { two() }\n",
            "p/b_linux.go": "package p\nfunc two() {}\n",
            "p/b_windows.go": "package p\nfunc two() {}\n",
        }
    )
    assert seen.callees == set()
    assert seen.counts.unresolved == 1


def test_a_package_is_imported_by_the_path_of_its_module() -> None:
    seen = analysed(
        {
            "shop-1.2/go.mod": MOD,
            "shop-1.2/main.go": (
                'package main\n\nimport (\n\t"fmt"\n\t"example.org/shop/cart"\n)\n\n'
                "func main() {\n\tfmt.Println(cart.Total())\n}\n"
            ),
            "shop-1.2/cart/cart.go": "package cart\nfunc Total() int { return 1 }\n",
            "shop-1.2/cart/cart_test.go": "package cart_test\nfunc Total() int { return 2 }\n",
        }
    )
    assert seen.calls == {("shop-1.2/main.go:main", "shop-1.2/cart/cart.go:Total", 9)}
    assert seen.imports == {
        ("shop-1.2/main.go", "fmt"),
        ("shop-1.2/main.go", "shop-1.2/cart/cart.go"),
    }
    assert seen.counts.external == 1


def test_an_alias_and_a_dot_import_bring_the_package() -> None:
    seen = analysed(
        {
            "go.mod": MOD,
            "a.go": (
                'package a\nimport c "example.org/shop/cart"\nimport . "example.org/shop/tax"\n'
                "func one() { c.Total(); Rate() }\n"
            ),
            "cart/cart.go": "package cart\nfunc Total() {}\n",
            "tax/tax.go": "package tax\nfunc Rate() {}\n",
        }
    )
    assert seen.callees == {("a.go:one", "cart/cart.go:Total"), ("a.go:one", "tax/tax.go:Rate")}


def test_the_longest_module_name_of_several_wins() -> None:
    seen = analysed(
        {
            "go.mod": MOD,
            "tax/go.mod": "module example.org/shop/tax\n",
            "tax/rate/rate.go": "package rate\nfunc Of() {}\n",
            "a.go": 'package a\nimport "example.org/shop/tax/rate"\nfunc one() { rate.Of() }\n',
        }
    )
    assert seen.callees == {("a.go:one", "tax/rate/rate.go:Of")}


def test_a_vendored_package_is_inside_and_an_unknown_one_outside() -> None:
    seen = analysed(
        {
            "a.go": (
                'package a\nimport "host.org/x/y"\nimport "host.org/z"\nfunc f() { y.G(); z.H() }\n'
            ),
            "vendor/host.org/x/y/y.go": "package y\nfunc G() {}\n",
        }
    )
    assert seen.imports == {("a.go", "vendor/host.org/x/y/y.go"), ("a.go", "host.org/z")}
    assert seen.callees == {("a.go:f", "vendor/host.org/x/y/y.go:G")}
    assert seen.counts.external == 1


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("net/http", "http"),
        ("example.org/yaml.v3", "yaml"),
        ("example.org/go-redis/v9", "redis"),
        ("example.org/semver-go", "semver"),
        ("example.org/my-lib", "my_lib"),
    ],
)
def test_the_name_of_a_package_is_seen_in_its_path(path: str, name: str) -> None:
    assert name in local_names(path)


def test_methods_are_found_through_the_receiver_whatever_it_is_called() -> None:
    seen = analysed(
        {
            "p/a.go": (
                "package p\ntype Cart struct{}\n"
                "func (c *Cart) Add() { c.check() }\n"
                "func (self Cart) check() {}\n"
            ),
            "p/b.go": "package p\nfunc (c *Cart) Clear() { c.check() }\nfunc check() {}\n",
        }
    )
    assert seen.callees == {
        ("p/a.go:Cart.Add", "p/a.go:Cart.check"),
        ("p/b.go:Cart.Clear", "p/a.go:Cart.check"),
    }


def test_a_method_is_not_found_as_a_function() -> None:
    seen = analysed(
        {"a.go": "package a\ntype T struct{}\nfunc (t T) Close() {}\nfunc f() { Close() }\n"}
    )
    assert seen.callees == set()
    assert seen.counts.unresolved == 1


def test_a_composite_literal_makes_its_type() -> None:
    seen = analysed(
        {
            "a.go": (
                "package a\ntype T struct{}\nfunc (t *T) Go() {}\n"
                "func f() { t := &T{}; t.Go(); (&T{}).Go(); new(T).Go() }\n"
            )
        }
    )
    assert seen.callees == {("a.go:f", "a.go:T"), ("a.go:f", "a.go:T.Go")}
    assert seen.counts.unresolved == 0


def test_embedded_structs_and_interfaces_are_bases() -> None:
    seen = analysed(
        {
            "a.go": (
                "package a\ntype Base struct{}\nfunc (b *Base) Run() {}\n"
                "type Reader interface { Read() }\n"
                "type Both interface { Reader; Write() }\n"
                "type Job struct { *Base; name string }\n"
                "func f(j *Job, b Both) { j.Run(); j.Base.Run(); b.Read(); b.Write() }\n"
            )
        }
    )
    assert seen.inherits == {("a.go:Job", "a.go:Base"), ("a.go:Both", "a.go:Reader")}
    assert seen.callees == {
        ("a.go:f", "a.go:Base.Run"),
        ("a.go:f", "a.go:Reader.Read"),
        ("a.go:f", "a.go:Both.Write"),
    }


def test_fields_parameters_and_results_have_the_types_that_are_written() -> None:
    seen = analysed(
        {
            "a.go": (
                "package a\ntype Engine struct{}\nfunc (e *Engine) Start() error { return nil }\n"
                "type Car struct { engine *Engine; spare []Engine; by map[string]*Engine }\n"
                "func NewCar() (*Car, error) { return nil, nil }\n"
                "func f() {\n\tcar, err := NewCar()\n\tcar.engine.Start()\n"
                "\tfor _, e := range car.spare { e.Start() }\n"
                "\tcar.by[key].Start()\n\t_ = err\n}\n"
            )
        }
    )
    assert {call for call in seen.calls if call[0] == "a.go:f"} == {
        ("a.go:f", "a.go:NewCar", 7),
        ("a.go:f", "a.go:Engine.Start", 8),
        ("a.go:f", "a.go:Engine.Start", 9),
        ("a.go:f", "a.go:Engine.Start", 10),
    }


def test_a_name_that_is_declared_anew_in_a_block_is_another_variable() -> None:
    seen = analysed(
        {
            "a.go": (
                "package a\ntype A struct{}\ntype B struct{}\n"
                "func (A) Go() {}\nfunc (B) Go() {}\n"
                "func f() {\n\tx := A{}\n\tif true {\n\t\tx := B{}\n\t\tx.Go()\n\t}\n\tx.Go()\n}\n"
            )
        }
    )
    assert {(callee, line) for _, callee, line in seen.calls if "Go" in callee} == {
        ("a.go:B.Go", 10),
        ("a.go:A.Go", 12),
    }


def test_a_variable_hides_the_function_of_its_name_from_then_on() -> None:
    seen = analysed(
        {
            "a.go": (
                "package a\nfunc run() int { return 1 }\n"
                "func f(all []func()) {\n\trun := run()\n\tfor _, run := range all {\n\t\trun()\n"
                "\t}\n\t_ = run\n}\n"
            )
        }
    )
    assert seen.calls == {("a.go:f", "a.go:run", 4)}
    assert seen.counts.unresolved == 1


def test_type_switches_and_assertions_say_what_a_value_is() -> None:
    seen = analysed(
        {
            "a.go": (
                "package a\ntype A struct{}\nfunc (A) Go() {}\ntype B struct{}\nfunc (B) Go() {}\n"
                "func f(x any) {\n\tswitch v := x.(type) {\n\tcase A:\n\t\tv.Go()\n"
                "\tcase *B:\n\t\tv.Go()\n\t}\n\tx.(A).Go()\n"
                "\tif b, ok := x.(*B); ok {\n\t\tb.Go()\n\t}\n}\n"
            )
        }
    )
    assert {(callee, line) for _, callee, line in seen.calls} == {
        ("a.go:A.Go", 9),
        ("a.go:B.Go", 11),
        ("a.go:A.Go", 13),
        ("a.go:B.Go", 15),
    }


def test_a_function_literal_with_a_name_is_a_function_and_one_without_is_not() -> None:
    seen = analysed(
        {
            "a.go": (
                "package a\nfunc g() {}\n"
                "func f() {\n\th := func() { g() }\n\th()\n\tgo func() { g() }()\n}\n"
                "var handler = func() { g() }\n"
            )
        }
    )
    assert seen.calls == {
        ("a.go:f.h", "a.go:g", 4),
        ("a.go:f", "a.go:f.h", 5),
        ("a.go:f", "a.go:g", 6),
        ("a.go:handler", "a.go:g", 8),
    }


def test_generic_types_and_functions_are_followed_and_their_parameters_are_not_guessed() -> None:
    seen = analysed(
        {
            "a.go": (
                "package a\ntype T struct{}\nfunc (T) Len() int { return 0 }\n"
                "type List[T any] struct { first T }\n"
                "func (l *List[T]) Len() int { return l.first.Len() }\n"
                "type Sized interface { Len() int }\n"
                "func Of[S Sized](s S) int { return s.Len() }\n"
                "func f(l *List[int]) { l.Len(); Of[T](T{}) }\n"
            )
        }
    )
    assert seen.callees == {
        ("a.go:Of", "a.go:Sized.Len"),
        ("a.go:f", "a.go:List.Len"),
        ("a.go:f", "a.go:Of"),
        ("a.go:f", "a.go:T"),
    }
    assert seen.counts.unresolved == 1  # l.first may be anything


def test_an_alias_stands_for_its_type_and_a_named_type_with_methods_is_a_class() -> None:
    seen = analysed(
        {
            "a.go": (
                "package a\ntype T struct{}\nfunc (T) Go() {}\ntype Same = T\n"
                "type Handler func()\nfunc (h Handler) Serve() {}\ntype ID int\n"
                "func f(s Same, h Handler) { s.Go(); h.Serve() }\n"
            )
        }
    )
    assert seen.callees == {("a.go:f", "a.go:T.Go"), ("a.go:f", "a.go:Handler.Serve")}
    kinds = {one.name: one.kind for one in seen.facts("a.go").declarations}
    assert kinds["Handler"] == "class"
    assert kinds["ID"] == kinds["Same"] == "type"


def test_package_variables_are_known_across_files() -> None:
    seen = analysed(
        {
            "go.mod": MOD,
            "p/a.go": "package p\ntype T struct{}\nfunc (T) Go() {}\nvar Default = T{}\n",
            "p/b.go": "package p\nfunc f() { Default.Go() }\n",
            "c.go": 'package c\nimport "example.org/shop/p"\nfunc g() { p.Default.Go() }\n',
        }
    )
    assert {("p/b.go:f", "p/a.go:T.Go"), ("c.go:g", "p/a.go:T.Go")} <= seen.callees


def test_builtins_and_the_standard_library_are_external() -> None:
    seen = analysed(
        {"a.go": 'package a\nimport "strings"\nfunc f(s string) { len(s); strings.ToUpper(s) }\n'}
    )
    assert (seen.counts.external, seen.counts.unresolved) == (2, 0)


def test_declarations_have_their_lines_and_signatures_without_literals() -> None:
    facts = parsed(
        "a.go",
        'package a\n\n// T is.\ntype T struct {\n\tA int `json:"secret"`\n}\n\n'
        "func (t *T) F(a, b int, c ...string) (d [16]byte, err error) {\n\treturn\n}\n",
    )
    shown = [(one.qualified, one.line, one.end_line, one.signature) for one in facts.declarations]
    assert shown == [
        ("T", 4, 6, "type T struct"),
        ("T.F", 8, 10, "F(a, b int, c ...string) (d [_]byte, err error)"),
    ]


def test_a_test_package_is_apart_from_the_package_it_tests() -> None:
    seen = analysed(
        {
            "go.mod": MOD,
            "p/a.go": "package p\nfunc Do() {}\n",
            "p/a_test.go": (
                'package p_test\nimport "example.org/shop/p"\nfunc TestDo() { p.Do(); Do() }\n'
            ),
        }
    )
    assert seen.callees == {("p/a_test.go:TestDo", "p/a.go:Do")}
    assert seen.counts.unresolved == 1


def test_code_that_nests_without_end_is_read_all_the_same() -> None:
    deep = 20_000
    facts = parsed("a.go", "package a\nvar x = " + "f(" * deep + ")" * deep)
    assert len(facts.calls) > 0
    parsed("a.go", "package a\nfunc f() {" + "if true {" * deep)
    parsed("a.go", "package a\nvar x " + "[]" * deep + "T")
    parsed("a.go", "package a\nfunc f() {" + "x := func() {" * 2_000)
    parsed("a.go", "package a\nvar x = a" + ".b()" * 5_000)


_VOCABULARY = """
    package type struct interface func { } ( ) [ ] . , := = * & <- if for range switch case go defer
    var const map chan a b T x.(type) []T{} ... ~ ` import "x" ; p
"""
_WORDS = st.lists(st.sampled_from(_VOCABULARY.split()), max_size=40).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(), _WORDS))
def test_any_text_has_facts(source: str) -> None:
    assert parsed("a.go", source.encode("utf-8", "replace")).language == "go"


def _resolved_in_body(body: str, outside: str = "") -> set[tuple[str, str]]:
    source = (
        "package a\n\ntype T struct{}\n\nfunc (t *T) Run() {}\nfunc one() {}\nfunc two() {}\n"
        f"func make() *T {{ return nil }}\n{outside}\nfunc run(x bool) {{\n{body}\n}}\n"
    )
    seen = analysed({"go.mod": "module example.org/a\n", "a.go": source})
    return {callee for callee in seen.callees if callee[0] == "a.go:run"}


def test_which_function_a_variable_holds_is_not_known_once_it_is_assigned_to() -> None:
    assert _resolved_in_body("f := one\nf()") == {("a.go:run", "a.go:one")}
    for body in (
        "f := one\nif x {\nf = two\n}\nf()",
        "f := one\nfor {\nf()\nf = two\n}",
        "f := one\ngo func() {\nf = two\n}()\nf()",
        "f := one\nf, y := two, 1\nf()\n_ = y",
        "f := one\nfor _, f = range all {\n}\nf()",
        "f := one\ng := f\nf = two\ng()",
        "f := func() {}\nif x {\nf = two\n}\nf()",
    ):
        assert _resolved_in_body(body) == set(), body


def test_a_variable_that_is_assigned_to_keeps_its_type() -> None:
    assert _resolved_in_body("t := make()\nt = other()\nt.Run()") == {
        ("a.go:run", "a.go:make"),
        ("a.go:run", "a.go:T.Run"),
    }


def test_a_function_in_a_variable_of_the_package_is_not_known_once_it_is_assigned_to() -> None:
    for declared in ("var f = one", "var f = func() {}"):
        assert _resolved_in_body("f()", declared)
        assert not _resolved_in_body("f()", f"{declared}\nfunc set() {{ f = two }}"), declared


def test_functions_in_variables_of_one_name_are_not_taken_for_each_other() -> None:
    seen = analysed(
        {
            "a.go": "package a\n\nfunc run(x bool) {\n\tif x {\n\t\tf := func() {}\n\t\tf()\n"
            "\t} else {\n\t\tf := func() {}\n\t\tf()\n\t}\n}\n"
        }
    )
    assert {line for _, _, line in seen.calls} == {6}
