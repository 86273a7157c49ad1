"""Code that is made to take long: four times as much of it takes about four times as long.

Not by the clock, which depends on the machine, but by the lines that the analysis runs: of these
there are as many every time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import coatcheck_codegraph
from coatcheck_codegraph import class_ancestors, domains, evaluation
from coatcheck_codegraph.domain_document import assign
from coatcheck_codegraph.javascript_values import solver as javascript_solver
from coatcheck_codegraph.project import Project
from coatcheck_codegraph.python_values import solver as python_solver
from coatcheck_codegraph.resolve import CallCounts, resolve
from packages.codegraph.tests.graphs import analysed, parsed

Sources = Mapping[str, str]

BOUND = 40
"""On ancestors of a class, and on wildcard imports that are followed: low, to be exceeded."""
SMALL = 110
"""More than all bounds on what is looked at for one name: below them, nothing can seem linear."""
TIMES = 4
GROWTH_MAX = 8.0
"""Four is linear, sixteen is quadratic."""

_WITHIN = str(Path(coatcheck_codegraph.__file__).parent)


@pytest.fixture(autouse=True)
def low_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_ancestors, "CLASSES_MAX", BOUND)
    monkeypatch.setattr(evaluation, "WILDCARDS_FOLLOWED_MAX", BOUND)
    monkeypatch.setattr(python_solver, "ELEMENTS_MAX", BOUND)


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of the analysis run; those of a loop as often as they do."""
    count = 0

    def on_line(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return on_line

    def on_call(frame: FrameType, _event: str, _arg: object) -> Any:
        return on_line if frame.f_code.co_filename.startswith(_WITHIN) else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def resolving(sources: Sources) -> tuple[int, CallCounts]:
    project = Project([parsed(path, source) for path, source in sources.items()])
    counts: list[CallCounts] = []
    lines = lines_run(lambda: counts.append(resolve(project).counts))
    return lines, counts[0]


def csharp_classes_that_inherit_in_a_ring(n: int) -> Sources:
    return {
        "a.cs": "".join(
            f"class C{i} : C{(i + 1) % n} {{ void M{i}() {{ Nope(); M{(i + 1) % n}(); }} }}\n"
            for i in range(n)
        )
    }


def typescript_classes_that_inherit_in_a_ring_of_files(n: int) -> Sources:
    return {
        f"c{i}.ts": f"import {{C{(i + 1) % n}}} from './c{(i + 1) % n}';\n"
        f"export class C{i} extends C{(i + 1) % n} {{ m{i}() {{ this.m{(i + 1) % n}(); }} }}\n"
        for i in range(n)
    }


def python_classes_in_diamonds(n: int) -> Sources:
    source = "class A0:\n  def a(self): pass\n"
    for i in range(n):
        source += (
            f"class B{i}(A{i}): pass\nclass C{i}(A{i}): pass\n"
            f"class A{i + 1}(B{i}, C{i}):\n  def h{i}(self): self.nope(); self.h{i}()\n"
        )
    return {"a.py": source}


def java_class_with_many_interfaces_and_heirs(n: int) -> Sources:
    interfaces = ", ".join(f"I{i}" for i in range(n))
    return {
        "a.java": "".join(f"interface I{i} {{}}\n" for i in range(n))
        + f"class X implements {interfaces} {{ void x() {{}} }}\n"
        + "".join(f"class Y{i} extends X {{ void g() {{ x(); nope(); }} }}\n" for i in range(n))
    }


def python_modules_that_import_everything_of_each_other_through_one(n: int) -> Sources:
    modules = {
        f"m{i}.py": f"from hub import *\ndef f{i}(): nope{i}()\nf{(i - 1) % n}()\n"
        for i in range(n)
    }
    return {**modules, "hub.py": "".join(f"from m{i} import *\n" for i in range(n))}


def typescript_modules_that_export_each_other_in_circles(n: int) -> Sources:
    return {
        f"m{i}.ts": f"export * from './m{(i + 1) % n}';\nexport * from './m{(i * 7 + 1) % n}';\n"
        f"import {{z{i}}} from './m{(i + 1) % n}';\nz{i}(); own(); function own() {{}}\n"
        for i in range(n)
    }


def javascript_functions_that_are_handed_on_and_called_through_a_table(n: int) -> Sources:
    handed = "".join(f"function f{i}(x) {{ f{i - 1}(x); }}\n" for i in range(1, n))
    table = ", ".join(f"k{i}() {{}}" for i in range(n))
    calls = "".join(f"f{i}(g); t[k{i}]();\n" for i in range(n))
    return {
        "a.js": f"function g() {{}}\nfunction f0(x) {{ x(); }}\n{handed}"
        f"const t = {{ {table} }};\n{calls}"
    }


def javascript_objects_that_are_made_of_each_other(n: int) -> Sources:
    objects = "".join(f"const o{i} = {{ ...o{i - 1}, m{i}() {{}} }};\n" for i in range(1, n))
    return {
        "a.js": f"const o0 = {{ m() {{}} }};\n{objects}" + "".join(f"o{i}.m();\n" for i in range(n))
    }


def javascript_objects_that_inherit_in_a_long_chain(n: int) -> Sources:
    return {
        "a.js": "const o0 = { f() {} };\n"
        + "".join(
            f"const o{i} = {{ __proto__: o{i - 1}, get x{i}() {{ return this.x{i - 1}; }} }};\n"
            f"o{i}.f();\no{i}.x{i};\n"
            for i in range(1, n)
        )
    }


def csharp_file_that_uses_many_namespaces(n: int) -> Sources:
    namespaces = {
        f"n{i}.cs": f"namespace N{i} {{ public class A{i} {{ public static void g() {{}} }} }}\n"
        for i in range(n)
    }
    uses = "".join(f"using N{i};\n" for i in range(n))
    calls = "".join(f"A{i}.g();" for i in range(n))
    return {**namespaces, "u.cs": f"{uses}class U {{ void f() {{ {calls} }} }}"}


def c_functions_of_one_name_that_are_promised_and_defined(n: int) -> Sources:
    own = {f"p{i}/x.c": "void same(void);\nvoid same(void) {}\n" for i in range(n)}
    promised = {f"q{i}/y.c": f"void same(void);\nvoid g{i}(void) {{ same(); }}" for i in range(n)}
    return {**own, **promised}


def csharp_class_in_many_parts(n: int) -> Sources:
    return {
        f"d{i}/A.cs": f"namespace P {{ partial class A {{ void f{i}() {{ f{(i + 1) % n}(); }} }} }}"
        for i in range(n)
    }


def ruby_class_that_is_opened_in_many_files(n: int) -> Sources:
    return {
        f"d{i}/a.rb": f"class A\n def f{i}\n  f{(i + 1) % n}()\n  same()\n end\n"
        " def same\n end\nend\n"
        for i in range(n)
    }


def go_package_of_many_files_that_many_import(n: int) -> Sources:
    package = {f"p/f{i}.go": f"package p\nfunc Same() {{}}\nfunc F{i}() {{}}\n" for i in range(n)}
    users = {
        f"q{i}/f.go": f'package q{i}\nimport "m/p"\nfunc G() {{ p.Same(); p.F{i}() }}\n'
        for i in range(n)
    }
    return {"go.mod": "module m\n", **package, **users}


def c_headers_of_one_name(n: int) -> Sources:
    headers = {f"d{i}/conf.h": "void f(void);\n" for i in range(n)}
    users = {f"d{i}/src/a.c": '#include "conf.h"\nvoid f(void) { f(); }\n' for i in range(n)}
    return {**headers, **users}


def rust_file_with_many_uses(n: int) -> Sources:
    uses = "".join(f"use x{i}::y;\n" for i in range(n))
    calls = "".join(f"f{i}();" for i in range(n))
    functions = "".join(f"fn f{i}() {{}}\n" for i in range(n))
    return {"src/lib.rs": f"{uses}{functions}fn main() {{ {calls} }}\n"}


def rust_crates_in_one_archive(n: int) -> Sources:
    manifests = {f"c{i}/Cargo.toml": f'[package]\nname = "c{i}"\n' for i in range(n)}
    roots = {
        f"c{i}/src/lib.rs": f"use c{(i + 1) % n}::g;\npub fn g() {{}}\nfn f() {{ c{i}::g(); }}\n"
        for i in range(n)
    }
    return {**manifests, **roots}


def copies_of_one_npm_package(n: int) -> Sources:
    manifests = {f"p{i}/package.json": '{"name": "same", "main": "src/a.js"}' for i in range(n)}
    code = {
        f"p{i}/src/a.js": "const s = require('same'); function f() {}\nf(); exports.f = f;\n"
        for i in range(n)
    }
    return {**manifests, **code}


def ruby_files_of_one_name(n: int) -> Sources:
    return {
        f"p{i}/lib/same.rb": "require 'same'\nrequire 'nope'\ndef f\n f()\nend\n" for i in range(n)
    }


def overloads_of_one_java_method(n: int) -> Sources:
    return {"a.java": "class A {" + "".join("void f(int a) { f(1); }" for _ in range(n)) + "}"}


def overloads_of_one_cpp_method_that_are_promised_and_defined(n: int) -> Sources:
    promised = "".join(f"void f(T{at} a);\n" for at in range(n))
    defined = "".join(f"void A::f(T{at} a) {{ f(a); }}\n" for at in range(n))
    return {"a.cpp": f"class A {{ {promised} }};\n{defined}"}


def csharp_extensions_of_one_class(n: int) -> Sources:
    extensions = "".join(f"static void F(this A a, T{at} b) {{ a.F(b); }}\n" for at in range(n))
    return {"a.cs": f"class A {{ }}\nstatic class X {{ {extensions} }}"}


def java_overloads_that_are_inherited_through_many_classes(n: int) -> Sources:
    methods = "void f(int a) { f(1, 2); } void f(int a, int b) { }"
    return {
        "a.java": "\n".join(f"class A{at} extends A{at + 1} {{ {methods} }}" for at in range(n))
    }


def python_functions_that_all_reach_all(n: int) -> Sources:
    """Each is in the list that each is given, calls what is in it, and returns it."""
    functions = "".join(
        f"def f{i}(given):\n  for each in given: each(given)\n  return f{(i + 1) % n}(given)\n"
        for i in range(n)
    )
    names = ", ".join(f"f{i}" for i in range(n))
    return {"a.py": f"{functions}every = [{names}]\nevery[{n - 1}](every)(every)\n"}


def python_classes_that_override_and_pass_themselves(n: int) -> Sources:
    classes = "".join(
        f"class C{i}(Base):\n  def step(self): return self.other.run(C{(i + 1) % n}())\n"
        for i in range(n)
    )
    return {
        "a.py": "class Base:\n  def run(self, other):\n    self.other = other\n"
        "    return self.step()\n  def step(self): return self\n" + classes + "C0().run(C1())\n"
    }


def python_function_of_many_parameters_that_is_called_with_a_dict(n: int) -> Sources:
    parameters = ", ".join(f"p{i}" for i in range(n))
    return {"a.py": f"def f({parameters}): return p{n - 1}\nd = {{}}\n" + "f(**d)\n" * n}


def python_dicts_that_are_updated_with_a_large_one(n: int) -> Sources:
    table = ", ".join(f"'k{i}': f" for i in range(n))
    return {
        "a.py": f"def f(): pass\nd = {{{table}}}\nf()\n"
        + "".join(f"a{i} = {{}}\na{i}.update(d)\n" for i in range(n))
    }


def python_partial_function_of_many_arguments(n: int) -> Sources:
    given = ", ".join(["f"] * n)
    return {
        "a.py": "from functools import partial\ndef f(*given): pass\n"
        f"g = partial(f, {given})\n" + "g()\n" * n
    }


def python_objects_that_are_called_by_objects(n: int) -> Sources:
    classes = "".join(
        f"class C{i}:\n  __call__ = C{(i + 1) % n}() if here else C{(i + 7) % n}()\n"
        for i in range(n)
    )
    return {"a.py": f"{classes}def f(): pass\nf()\n" + "".join(f"C{i}()()\n" for i in range(n))}


CASES: dict[Callable[[int], Sources], Callable[[int], int]] = {
    python_functions_that_all_reach_all: lambda n: 2 * n + 1,
    python_classes_that_override_and_pass_themselves: lambda n: 2 * n + 4,
    python_function_of_many_parameters_that_is_called_with_a_dict: lambda n: n,
    python_dicts_that_are_updated_with_a_large_one: lambda _: 1,
    python_partial_function_of_many_arguments: lambda n: n,
    python_objects_that_are_called_by_objects: lambda n: 3 * n + 1,
    csharp_classes_that_inherit_in_a_ring: lambda n: n,
    typescript_classes_that_inherit_in_a_ring_of_files: lambda n: n,
    python_classes_in_diamonds: lambda n: n,
    java_class_with_many_interfaces_and_heirs: lambda n: n,
    python_modules_that_import_everything_of_each_other_through_one: lambda n: n,
    typescript_modules_that_export_each_other_in_circles: lambda n: n,
    javascript_functions_that_are_handed_on_and_called_through_a_table: lambda n: 2 * n,
    javascript_objects_that_are_made_of_each_other: lambda n: n,
    csharp_file_that_uses_many_namespaces: lambda n: n,
    c_functions_of_one_name_that_are_promised_and_defined: lambda n: n,
    csharp_class_in_many_parts: lambda n: n,
    ruby_class_that_is_opened_in_many_files: lambda n: n,
    go_package_of_many_files_that_many_import: lambda n: n,
    c_headers_of_one_name: lambda n: n,
    rust_file_with_many_uses: lambda n: n,
    rust_crates_in_one_archive: lambda n: n,
    copies_of_one_npm_package: lambda n: n,
    ruby_files_of_one_name: lambda n: n,
    overloads_of_one_java_method: lambda _: 0,  # of so many, none is certain
    overloads_of_one_cpp_method_that_are_promised_and_defined: lambda _: 0,
    csharp_extensions_of_one_class: lambda _: 0,
    java_overloads_that_are_inherited_through_many_classes: lambda n: n,
}
"""How many calls are resolved, by the size."""


@pytest.mark.parametrize("made", CASES, ids=lambda made: made.__name__)
def test_four_times_the_code_takes_about_four_times_the_work(
    made: Callable[[int], Sources],
) -> None:
    lines, counts = resolving(made(SMALL))
    more_lines, more_counts = resolving(made(SMALL * TIMES))

    assert counts.resolved == CASES[made](SMALL)
    assert more_counts.resolved == CASES[made](SMALL * TIMES)
    assert more_lines < GROWTH_MAX * lines


def test_members_that_are_looked_for_along_a_chain_count_against_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(javascript_solver, "STEPS_MIN", 0)
    monkeypatch.setattr(javascript_solver, "STEPS_PER_CONSTRAINT", 5)

    lines, _ = resolving(javascript_objects_that_inherit_in_a_long_chain(SMALL))
    more_lines, _ = resolving(javascript_objects_that_inherit_in_a_long_chain(SMALL * TIMES))

    assert more_lines < GROWTH_MAX * lines


def test_a_class_that_is_inherited_on_many_ways_comes_after_all_that_extend_it() -> None:
    source = "class A0:\n  def f(self): pass\n"
    for i in range(12):
        source += (
            f"class B{i}(A{i}): pass\nclass C{i}(A{i}): pass\nclass A{i + 1}(B{i}, C{i}): pass\n"
        )
    source += "class X(C11):\n  def f(self): pass\nclass Z(A12, X):\n  def g(self): self.f()\n"

    seen = analysed({"a.py": source})

    # Thousands of ways lead to A0, and all of them pass what comes before it in the order.
    assert seen.callees == {("a.py:Z.g", "a.py:X.f")}


def test_many_variables_of_one_name_are_told_apart() -> None:
    def made(n: int) -> str:
        classes = "".join(f"class B{i} {{ void z() {{}} }}\n" for i in range(n))
        blocks = "".join(f"{{ B{i} x = new B{i}(); x.z(); }}\n" for i in range(n))
        return f"{classes}class A {{ void f() {{ {blocks} }} }}\n"

    lines = lines_run(lambda: parsed("a.java", made(SMALL)))
    more_lines = lines_run(lambda: parsed("a.java", made(SMALL * TIMES)))
    seen = analysed({"a.java": made(SMALL)})

    assert more_lines < GROWTH_MAX * lines
    assert {callee for _, callee in seen.callees if callee.endswith(".z")} == {
        f"a.java:B{i}.z" for i in range(SMALL)
    }


def test_of_too_many_ties_between_files_the_strongest_make_the_domains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = [domains.DomainFile(f"d{i}/f.py", ()) for i in range(4)]
    strong = [domains.Link(0, 1, 3.0), domains.Link(2, 3, 3.0)]
    weak = [domains.Link(one, other, 2.9) for one in (0, 1) for other in (2, 3)]
    assert len(domains.find_domains(files, [*weak, *strong])) == 1

    monkeypatch.setattr(domains, "PAIRS_MAX", 2)

    found = domains.find_domains(files, [*weak, *strong])
    assert [domain.files for domain in found] == [(0, 1), (2, 3)]


def test_files_that_are_each_a_domain_of_their_own_are_assigned_one_by_one() -> None:
    def work(n: int) -> int:
        sources = {f"d{i}/f.py": "def f(): pass\n" for i in range(n)}
        resolution = resolve(Project([parsed(path, source) for path, source in sources.items()]))
        assert len(assign(resolution, "supermodel").domains) == n
        return lines_run(lambda: assign(resolution, "supermodel"))

    small = 4 * SMALL
    assert work(small * TIMES) < GROWTH_MAX * work(small)


def test_all_functions_show_their_names_in_their_signatures() -> None:
    sources = {
        "a.py": "def f(a): pass\n",
        "a.js": "function f(a) {}\n",
        "a.go": "package a\nfunc f(a int) int {}\n",
        "a.rs": "fn f(a: i32) -> i32 { 1 }\n",
        "a.rb": "def f\nend\n",
        "a.php": "<?php function f($a) {}\n",
        "a.c": "int f(int a) { }\n",
        "a.cpp": "int g() { auto f = [](int a) { return a; }; }\n",
        "A.java": "class A { int f(int a) { return a; } }\n",
        "a.cs": "class A { int f(int a) { return a; } }\n",
    }
    shown = {
        path: next(one.signature for one in parsed(path, source).declarations if one.name == "f")
        for path, source in sources.items()
    }
    assert shown == {
        "a.py": "f(a)",
        "a.js": "f(a)",
        "a.go": "f(a int) int",
        "a.rs": "f(a: i32) -> i32",
        "a.rb": "f()",
        "a.php": "f($a)",
        "a.c": "int f(int a)",
        "a.cpp": "f(int a)",
        "A.java": "int f(int a)",
        "a.cs": "int f(int a)",
    }
