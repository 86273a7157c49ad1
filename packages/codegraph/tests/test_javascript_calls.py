"""Calls of JavaScript by construct: how many are found, and how many of these are wrong."""

from __future__ import annotations

import pytest

from packages.codegraph.tests.graphs import analysed, analysed_folder
from packages.codegraph.tests.javascript_scores import Case, cases, scores, table
from tests.corpus import package

PRECISION_MIN = 97.0
RECALL_MIN = 95.0


def test_most_calls_are_found_and_few_are_wrong() -> None:
    by_construct, whole = scores(cases())

    shown = table([*by_construct, whole])
    assert whole.expected > 500
    assert whole.precision >= PRECISION_MIN, shown
    assert whole.recall >= RECALL_MIN, shown


@pytest.mark.parametrize("case", tuple(cases()), ids=lambda case: f"{case.construct}: {case.title}")
def test_what_a_case_expects_is_declared(case: Case) -> None:
    """A name with a mistake in it would count as a call that is not found."""
    declared = analysed(case.sources).declared | set(case.sources)
    assert {name for edge in case.expected for name in edge} <= declared


def test_a_function_without_a_name_is_part_of_the_code_around_until_something_calls_it() -> None:
    seen = analysed(
        {
            "a.js": """\
function work() {}
function twice(fn) { fn(); fn(); }
[1].forEach(() => work());
external(() => work());
twice(() => work());
"""
        }
    )
    assert {call for call in seen.any_calls if call[1] == "a.js:work"} == {
        ("a.js", "a.js:work", 3),
        ("a.js", "a.js:work", 4),
        ("a.js:(anonymous)", "a.js:work", 5),
    }
    assert [name for name in seen.declared if "anonymous" in name] == ["a.js:(anonymous)"]
    (anonymous,) = (one for one in seen.facts("a.js").declarations if one.name == "(anonymous)")
    assert (anonymous.line, anonymous.end_line, anonymous.signature) == (5, 5, "(anonymous)()")


def test_what_may_be_one_of_very_many_functions_stays_unresolved() -> None:
    def source(functions: int) -> str:
        declared = "".join(f"function f{at}() {{}}\nrun(f{at});\n" for at in range(functions))
        return f"function run(fn) {{ fn(); }}\n{declared}"

    few, many = analysed({"a.js": source(5)}), analysed({"a.js": source(50)})

    assert sum(caller == "a.js:run" for caller, _ in few.callees) == 5
    assert sum(caller == "a.js:run" for caller, _ in many.callees) == 0
    assert many.counts.unresolved == 1


def test_deep_and_long_code_is_followed_as_far_as_it_goes() -> None:
    nested = "f(" * 500 + ")" * 500
    sources = {
        "nested.js": f"function f(x) {{ return x; }}\n{nested};\n",
        "else.js": "function f() {}\n" + "if (x) f(); else " * 500 + "f();\n",
        "closures.js": "const f = " + "(x) => " * 500 + "x;\nf" + "()" * 500 + ";\n",
        "classes.js": "class A extends B {}\nclass B extends A {}\nnew A().m();\n",
        "variables.js": "let a = b, b = a;\na();\n",
        "parents.js": "const a = {}, b = { __proto__: a };\nObject.assign(a, b);\na.f();\n",
    }
    seen = analysed(sources)

    assert ("nested.js", "nested.js:f") in seen.callees
    assert ("else.js", "else.js:f") in seen.callees
    assert ("closures.js", "closures.js:f") in seen.callees


def test_a_member_may_have_any_name() -> None:
    exported = "function f() {}\nexport { f as 'x..', f as '..', f as '7..', f as '*' };\n"
    imported = "import { 'x..' as a, '..' as b } from './b.js';\na();\nb();\n"
    seen = analysed({"a.js": imported, "b.js": exported})

    assert seen.callees == {("a.js", "b.js:f")}


def test_a_constructor_that_is_inherited_in_very_many_ways_is_found_once() -> None:
    def lattice(levels: int) -> str:
        classes = "".join(
            f"class A{at} extends (c ? A{at - 1} : B{at - 1}) {{}}\n"
            f"class B{at} extends (c ? B{at - 1} : A{at - 1}) {{}}\n"
            for at in range(1, levels)
        )
        return (
            "class A0 { constructor() {} }\nclass B0 { constructor() {} }\n"
            f"{classes}new A{levels - 1}();\n"
        )

    seen = analysed({"a.js": lattice(36)})

    assert seen.callees == {("a.js", "a.js:A0.constructor"), ("a.js", "a.js:B0.constructor")}


def test_an_analysis_gives_the_same_every_time() -> None:
    first, second = (analysed_folder(package("express")) for _ in range(2))
    assert first.resolution.calls.keys() == second.resolution.calls.keys()
    assert first.any_calls == second.any_calls
