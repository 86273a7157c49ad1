"""What references lead to, in facts made by hand: what holds for every language."""

from __future__ import annotations

import pytest

from coatcheck_codegraph.builder import named
from coatcheck_codegraph.facts import (
    FILE,
    Binding,
    Call,
    Declaration,
    FileFacts,
    Import,
    Ref,
    Step,
)
from coatcheck_codegraph.project import Project
from coatcheck_codegraph.resolve import resolve
from packages.codegraph.tests.graphs import Seen, analysed, seen_in

OPAQUE = Ref("opaque", ())


def function(name: str, parent: int = FILE, **more: object) -> Declaration:
    return Declaration("function", name, name, 1, 1, parent, **more)  # type: ignore[arg-type]


def klass(name: str, parent: int = FILE, **more: object) -> Declaration:
    return Declaration("class", name, name, 1, 1, parent, **more)  # type: ignore[arg-type]


def seen(*files: FileFacts) -> Seen:
    return seen_in(Project(files))


def call(*names: str, caller: int = FILE, line: int = 1) -> Call:
    return Call(line, caller, named(*names, called=True))


def test_a_method_written_outside_of_its_class_is_found_through_it_and_not_by_its_name() -> None:
    facts = FileFacts(
        "a.py",
        "python",
        9,
        [
            klass("Server"),
            function("close", receiver=named("Server", is_type=True)),
            function("main", locals={"s": named("Server", is_type=True)}),
        ],
        calls=[call("s", "close", caller=2), call("close", caller=2)],
    )

    found = seen(facts)

    assert found.callees == {("a.py:main", "a.py:close")}
    assert found.counts.unresolved == 1
    assert found.resolution.owners["a.py", 1].declaration.name == "Server"


def test_the_function_outside_is_what_the_promise_in_the_class_means() -> None:
    facts = FileFacts(
        "a.py",
        "python",
        9,
        [
            klass("X"),
            Declaration("function", "f", "X.f", 2, 2, 0, forward=True),
            Declaration("function", "f", "X.f", 5, 5, receiver=named("X", is_type=True)),
        ],
        calls=[call("X", "f")],
    )

    (found,) = resolve(Project([facts])).calls["a.py"]

    assert found.callee.declaration.line == 5


def test_self_in_a_method_outside_of_its_class_is_an_object_of_it() -> None:
    facts = FileFacts(
        "a.py",
        "python",
        9,
        [
            klass("X"),
            function("f", receiver=named("X", is_type=True)),
            function("g", receiver=named("X", is_type=True)),
        ],
        calls=[Call(1, 1, Ref("self", (Step("g", True),)))],
    )

    assert seen(facts).callees == {("a.py:f", "a.py:g")}


def test_partial_declarations_of_one_name_are_one_class() -> None:
    one = FileFacts(
        "a.py",
        "python",
        9,
        [klass("P", partial=True), function("f", 0)],
        calls=[Call(1, 1, Ref("self", (Step("g", True),)))],
    )
    two = FileFacts("b.py", "python", 9, [klass("P", partial=True), function("g", 0)])

    assert seen(one, two).callees == {("a.py:f", "b.py:g")}


def test_classes_of_one_name_in_two_files_are_two_unless_they_are_partial() -> None:
    one = FileFacts(
        "a.py",
        "python",
        9,
        [klass("P"), function("f", 0)],
        calls=[Call(1, 1, Ref("self", (Step("g", True),)))],
    )
    two = FileFacts("b.py", "python", 9, [klass("P"), function("g", 0)])

    assert seen(one, two).counts.unresolved == 1


def test_members_of_a_namespace_see_each_other_by_their_bare_names() -> None:
    facts = FileFacts(
        "a.py",
        "python",
        9,
        [
            Declaration("namespace", "n", "n", 1, 9),
            function("f", 0),
            klass("C", 0),
            function("m", 2),
            function("g", 2),
        ],
        calls=[call("f", caller=3), call("g", caller=3), call("n", "f"), call("n")],
    )

    found = seen(facts)

    assert found.callees == {("a.py:m", "a.py:f"), ("a.py", "a.py:f")}
    assert found.counts.unresolved == 2  # a method is no bare name; a namespace is not called


def test_a_called_name_is_a_method_first_and_another_a_field() -> None:
    facts = FileFacts(
        "a.py",
        "python",
        9,
        [
            klass("Size"),
            function("grow", 0),
            klass("Box", fields={"size": named("Size", is_type=True)}),
            function("size", 2),
            function("f", 2),
        ],
        calls=[
            Call(1, 4, Ref("self", (Step("size", True),))),
            Call(2, 4, Ref("self", (Step("size"), Step("grow", True)))),
        ],
    )

    assert seen(facts).calls == {("a.py:f", "a.py:size", 1), ("a.py:f", "a.py:grow", 2)}


def test_what_a_file_exports_under_another_name_is_imported_by_that() -> None:
    made = FileFacts(
        "made.py",
        "python",
        9,
        [function("inner")],
        exports={"outer": named("inner"), "": named("inner")},
    )
    user = FileFacts(
        "user.py",
        "python",
        9,
        imports=[Import(1, "made", (Binding("o", "outer"), Binding("m"), Binding("d", "default")))],
        calls=[call("o", line=2), call("m", line=3), call("d", line=4)],
    )

    assert seen(made, user).calls == {
        ("user.py", "made.py:inner", 2),
        ("user.py", "made.py:inner", 3),
        ("user.py", "made.py:inner", 4),
    }


def test_a_function_put_into_a_module_is_its_member() -> None:
    # `module.f = function () { this.g() }`, as far as facts can say it.
    facts = FileFacts(
        "made.py",
        "python",
        9,
        [function("f", receiver=named("me")), function("g", receiver=named("me"))],
        imports=[Import(1, "made", (Binding("me"),))],
        calls=[call("me", "f"), call("f"), Call(1, 0, Ref("self", (Step("g", True),)))],
    )

    found = seen(facts)

    assert found.callees == {("made.py", "made.py:f"), ("made.py:f", "made.py:g")}
    assert found.counts.unresolved == 1


@pytest.mark.parametrize("steps", [(), (Step("__init__", True),)])
def test_super_and_self_called_bare_are_constructors(steps: tuple[Step, ...]) -> None:
    facts = FileFacts(
        "a.py",
        "python",
        9,
        [
            klass("A"),
            klass("B", bases=(named("A"),)),
            function("__init__", 1),
            function("again", 1),
        ],
        calls=[Call(1, 2, Ref("super", steps)), Call(2, 3, Ref("self", steps))],
    )

    assert seen(facts).calls == {
        ("a.py:__init__", "a.py:A", 1),
        ("a.py:again", "a.py:__init__", 2),
    }


def test_opaque_variables_and_fields_hide_what_has_their_name() -> None:
    facts = FileFacts(
        "a.py",
        "python",
        9,
        [
            function("f"),
            function("g", locals={"f": OPAQUE}),
            klass("Top"),
            function("m", 2),
            klass("Low", bases=(named("Top"),), fields={"m": OPAQUE}),
            function("h", locals={"low": named("Low", is_type=True)}),
        ],
        calls=[call("f", caller=1), call("low", "m", "x", caller=5)],
    )

    assert seen(facts).counts.unresolved == 2


def test_circles_end() -> None:
    found = analysed(
        {
            "a.py": "from b import x\nfrom b import *\nclass A(B): pass\nclass B(A):\n"
            "    def f(self):\n        self.nothing()\nx()\ny = y()\ny.z()\n"
            "def f(): return g()\ndef g(): return f()\nf().x()\nclass C(C): pass\nC().f()\n",
            "b.py": "from a import x\nfrom a import *\nx()\n",
        }
    )

    assert found.counts.resolved == 4
    assert found.counts.total == 11


def test_chains_without_end_end() -> None:
    deep = 3000
    lines = ["class C0:\n    def f(self): pass"]
    lines += [f"class C{n}(C{n - 1}): pass" for n in range(1, deep)]
    lines += ["v0 = C0()", *(f"v{n} = v{n - 1}" for n in range(1, deep)), f"v{deep - 1}.f()"]
    lines += [f"def r{n}(): return r{n + 1}()" for n in range(deep)]
    lines += ["r0().f()", f"C{deep - 1}().f()", "v1.f()"]
    files = {"a.py": "\n".join(lines)}
    files |= {f"m{n}.py": f"from m{n + 1} import x\n" for n in range(300)}

    found = analysed(files | {"user.py": "from m0 import x\nx()\n"})

    assert ("a.py", "a.py:C0.f") in found.callees


def test_what_is_called_again_and_again_is_counted_each_time() -> None:
    found = analysed({"a.py": "def f(): pass\n" + "f()\n" * 500})

    assert found.counts.resolved == 500
    assert len(found.calls) == 500
