"""Python: what is read off a file, and where its names lead."""

from __future__ import annotations

import re
from textwrap import indent

from hypothesis import given, settings
from hypothesis import strategies as st

from packages.codegraph.tests.graphs import analysed, parsed


def test_functions_of_the_same_file_are_called_by_name() -> None:
    seen = analysed({"a.py": "def helper():\n    pass\n\ndef main():\n    helper()\n\nmain()\n"})

    assert seen.calls == {
        ("a.py:main", "a.py:helper", 5),
        ("a.py", "a.py:main", 7),
    }


def test_imported_names_and_their_aliases_lead_to_their_definitions() -> None:
    seen = analysed(
        {
            "pkg/__init__.py": "",
            "pkg/tools.py": "def cut(): pass\ndef glue(): pass\n",
            "pkg/use.py": "from pkg.tools import cut, glue as stick\ncut()\nstick()\n",
        }
    )

    assert seen.callees == {
        ("pkg/use.py", "pkg/tools.py:cut"),
        ("pkg/use.py", "pkg/tools.py:glue"),
    }
    assert seen.imports == {("pkg/use.py", "pkg/tools.py")}


def test_modules_are_reached_by_attribute_whichever_way_they_were_imported() -> None:
    seen = analysed(
        {
            "pkg/__init__.py": "",
            "pkg/sub/__init__.py": "",
            "pkg/sub/tools.py": "def cut(): pass\n",
            "a.py": "import pkg.sub.tools\npkg.sub.tools.cut()\n",
            "b.py": "import pkg.sub.tools as t\nt.cut()\n",
            "c.py": "from pkg.sub import tools\ntools.cut()\n",
            "d.py": "from pkg import sub\nsub.tools.cut()\n",
        }
    )

    assert seen.callees == {
        (path, "pkg/sub/tools.py:cut") for path in ("a.py", "b.py", "c.py", "d.py")
    }
    assert ("a.py", "pkg/sub/tools.py") in seen.imports
    assert ("a.py", "pkg/__init__.py") not in seen.imports
    assert ("c.py", "pkg/sub/tools.py") in seen.imports
    assert ("d.py", "pkg/sub/__init__.py") in seen.imports


def test_relative_imports_climb_from_the_file() -> None:
    seen = analysed(
        {
            "pkg/__init__.py": "",
            "pkg/base.py": "def f(): pass\n",
            "pkg/inner/__init__.py": "from ..base import f\n",
            "pkg/inner/deep.py": "from ..base import f\nfrom . import beside\n"
            "from .beside import g\nf()\nbeside.g()\ng()\n",
            "pkg/inner/beside.py": "def g(): pass\n",
        }
    )

    assert seen.calls == {
        ("pkg/inner/deep.py", "pkg/base.py:f", 4),
        ("pkg/inner/deep.py", "pkg/inner/beside.py:g", 5),
        ("pkg/inner/deep.py", "pkg/inner/beside.py:g", 6),
    }
    assert ("pkg/inner/__init__.py", "pkg/base.py") in seen.imports


def test_names_are_found_through_the_packages_that_re_export_them() -> None:
    seen = analysed(
        {
            "pkg/__init__.py": "from .api import *\nfrom ._hidden import thing as public\n",
            "pkg/api.py": "from ._hidden import thing\ndef get(): pass\ndef _own(): pass\n",
            "pkg/_hidden.py": "def thing(): pass\n",
            "use.py": "import pkg\nfrom pkg import get, public\npkg.get()\nget()\n"
            "public()\npkg.thing()\npkg._own()\n",
        }
    )

    assert seen.calls == {
        ("use.py", "pkg/api.py:get", 3),
        ("use.py", "pkg/api.py:get", 4),
        ("use.py", "pkg/_hidden.py:thing", 5),
        ("use.py", "pkg/_hidden.py:thing", 6),
    }
    assert seen.counts.unresolved == 1  # a name with an underscore is not brought by a star


def test_packages_are_found_wherever_their_source_folder_is() -> None:
    seen = analysed(
        {
            "thing-1.2/src/thing/__init__.py": "from thing.core import run\n",
            "thing-1.2/src/thing/core.py": "def run(): pass\n",
            "thing-1.2/tests/test_core.py": "import thing\nfrom thing.core import run\n"
            "run()\nthing.run()\n",
            "thing-1.2/json.py": "def loads(): pass\n",
            "thing-1.2/src/thing/other.py": "import json\njson.loads()\n",
        }
    )

    assert seen.callees == {("thing-1.2/tests/test_core.py", "thing-1.2/src/thing/core.py:run")}
    assert ("thing-1.2/src/thing/other.py", "json") in seen.imports  # the library's, not a file


def test_modules_that_are_not_in_the_archive_are_external_under_their_full_name() -> None:
    seen = analysed(
        {
            "pkg/__init__.py": "",
            "pkg/a.py": "import os.path\nfrom urllib.parse import quote\nfrom ._speed import fast\n"
            "os.path.join()\nquote()\nfast()\nlen([])\n''.join()\n",
        }
    )

    assert seen.imports == {
        ("pkg/a.py", "os.path"),
        ("pkg/a.py", "urllib.parse"),
        ("pkg/a.py", "pkg._speed"),
    }
    assert (seen.counts.external, seen.counts.resolved, seen.counts.unresolved) == (5, 0, 0)


def test_methods_are_found_through_self_and_cls_and_what_is_inherited() -> None:
    seen = analysed(
        {
            "base.py": "class Base:\n    def shared(self): pass\n    @classmethod\n"
            "    def make(cls): return cls()\n",
            "a.py": "from base import Base\n"
            "class Child(Base):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "    def own(self):\n"
            "        self.shared()\n"
            "        self.own()\n"
            "        super().shared()\n"
            "        def inner():\n"
            "            self.own()\n"
            "    @classmethod\n"
            "    def build(cls):\n"
            "        cls().own()\n"
            "        cls.make()\n"
            "    @staticmethod\n"
            "    def alone(self):\n"
            "        self.own()\n",
        }
    )

    assert seen.calls == {
        ("a.py:Child.own", "base.py:Base.shared", 6),
        ("a.py:Child.own", "a.py:Child.own", 7),
        ("a.py:Child.own", "base.py:Base.shared", 8),
        ("a.py:Child.own.inner", "a.py:Child.own", 10),
        ("a.py:Child.build", "a.py:Child.__init__", 13),
        ("a.py:Child.build", "a.py:Child.own", 13),
        ("a.py:Child.build", "base.py:Base.make", 14),
        ("a.py:Child.__init__", "base.py:Base", 4),
    }
    # `cls()` makes what it is asked of.
    assert seen.possible == {
        ("base.py:Base.make", "base.py:Base", 4),
        ("base.py:Base.make", "a.py:Child.__init__", 4),
    }
    assert seen.inherits == {("a.py:Child", "base.py:Base")}


def test_of_two_bases_the_nearest_in_the_order_of_the_language_has_the_method() -> None:
    seen = analysed(
        {
            "a.py": "class Top:\n    def f(self): pass\n"
            "class Left(Top): pass\n"
            "class Right(Top):\n    def f(self): pass\n"
            "class Both(Left, Right):\n    def g(self):\n        self.f()\n"
        }
    )

    assert seen.callees == {("a.py:Both.g", "a.py:Right.f")}


def test_a_class_that_is_called_runs_its_constructor_or_stands_for_itself() -> None:
    seen = analysed(
        {
            "a.py": "class With:\n    def __init__(self): pass\nclass Without: pass\n"
            "With()\nWithout()\n"
        }
    )

    assert seen.calls == {("a.py", "a.py:With.__init__", 4), ("a.py", "a.py:Without", 5)}


def test_variables_hold_what_was_assigned_annotated_or_entered() -> None:
    seen = analysed(
        {
            "a.py": "from typing import Optional\n"
            "class Foo:\n"
            "    def go(self): pass\n"
            "    def __enter__(self): return self\n"
            "def made():\n    x = Foo()\n    x.go()\n"
            "def typed(a: Foo, b: Optional[Foo], c: 'Foo', d: Foo | None, e: list[Foo]):\n"
            "    a.go()\n    b.go()\n    c.go()\n    d.go()\n    e.go()\n"
            "def entered():\n    with Foo() as y:\n        y.go()\n"
            "def caught():\n    try: pass\n    except Foo as z:\n        z.go()\n"
            "def given() -> Foo: pass\n"
            "def chained():\n    given().go()\n    (w := given()).go()\n    w.go()\n"
        }
    )

    assert {line for _, callee, line in seen.calls if callee == "a.py:Foo.go"} == {
        *(7, 9, 10, 11, 12, 16, 20, 23, 24, 25)
    }


def test_a_variable_that_is_assigned_two_kinds_of_value_means_nothing() -> None:
    seen = analysed(
        {
            "a.py": "class A:\n    def go(self): pass\nclass B:\n    def go(self): pass\n"
            "def f(flag):\n    x = A()\n    if flag:\n        x = B()\n    x.go()\n"
            "def g():\n    x = None\n    x = A()\n    x.go()\n"
        }
    )

    assert ("a.py:g", "a.py:A.go", 13) in seen.calls
    assert not {call for call in seen.calls if call[2] == 9}


def test_parameters_hide_the_functions_and_modules_of_their_name() -> None:
    seen = analysed(
        {
            "tools.py": "def cut(): pass\n",
            "a.py": "import tools\ndef cut(): pass\ndef f(tools, cut):\n    tools.cut()\n"
            "    cut()\n"
            "def g():\n    for cut in []:\n        cut()\n    [tools.cut() for tools in []]\n"
            "    (lambda tools: tools.cut())(1)\n",
        }
    )

    assert seen.calls == {("a.py:g", "a.py:g.<lambda>", 10)}
    assert seen.possible == set()


def test_fields_are_known_by_their_assignment_in_a_method_or_by_their_annotation() -> None:
    seen = analysed(
        {
            "a.py": "class Engine:\n    def start(self): pass\n"
            "class Car:\n"
            "    spare: Engine\n"
            "    def __init__(self, given: Engine, what):\n"
            "        self.engine = Engine()\n"
            "        self.given = given\n"
            "        self.what = what\n"
            "        self.late: Engine | None = None\n"
            "    @property\n"
            "    def shown(self): return self.engine\n"
            "    def drive(self):\n"
            "        self.engine.start()\n"
            "        self.given.start()\n"
            "        self.late.start()\n"
            "        self.spare.start()\n"
            "        self.shown.start()\n"
            "        self.what.start()\n"
        }
    )

    started = {line for _, callee, line in seen.calls if callee == "a.py:Engine.start"}
    assert started == {13, 14, 15, 16, 17}
    assert seen.counts.unresolved == 1


def test_calls_in_decorators_defaults_and_bases_belong_to_what_is_around() -> None:
    seen = analysed(
        {
            "a.py": "def mark(x): pass\ndef base(): pass\n"
            "@mark(1)\n"
            "def f(x=mark(2)):\n"
            "    mark(3)\n"
            "class C(base()):\n"
            "    @mark(4)\n"
            "    def g(self, x=mark(5)): pass\n"
            "    y = mark(6)\n"
            "    z = lambda: mark(7)\n"
        }
    )

    assert {(caller, line) for caller, callee, line in seen.calls if callee == "a.py:mark"} == {
        ("a.py", 3),
        ("a.py", 4),
        ("a.py:f", 5),
        ("a.py:C", 7),
        ("a.py:C", 8),
        ("a.py:C", 9),
        ("a.py:C.<lambda>", 10),
    }
    assert ("a.py", "a.py:base", 6) in seen.calls


def test_declarations_have_the_lines_of_their_statement_and_a_call_that_of_its_name() -> None:
    facts = parsed(
        "a.py",
        "@mark\nclass A:\n    x = 1\n\n    def f(\n        self,\n    ):\n"
        "        return 1\n\n\n(A()\n  .f\n  ())\n",
    )

    assert [(one.qualified, one.line, one.end_line) for one in facts.declarations] == [
        ("A", 2, 8),
        ("A.f", 5, 8),
    ]
    assert sorted((call.line, call.callee.steps[-1].name) for call in facts.calls) == [
        (11, "A"),
        (12, "f"),
    ]
    assert facts.lines == 13


def test_signatures_have_names_and_types_and_no_value() -> None:
    facts = parsed(
        "a.py",
        "def f(self, a: int = 41, /, *rest: str, k='CANARY', t: 'Quoted' = 0,"
        " l: Literal['CANARY'] = 'CANARY', **more) -> dict[str, int] | None: pass\n",
    )

    assert facts.declarations[0].signature == (
        "f(self, a: int, /, *rest: str, k, t, l, **more) -> dict[str, int] | None"
    )


def test_aliases_of_types_are_types_and_stand_for_what_they_name() -> None:
    seen = analysed(
        {
            "a.py": "from typing import NewType, TypeAlias, TypedDict\n"
            "class Foo:\n    def go(self): pass\n"
            "type Short = Foo\n"
            "UserId = NewType('UserId', int)\n"
            "Old: TypeAlias = Foo\n"
            "class Movie(TypedDict):\n    name: str\n"
            "def f(x: Short, y: Old):\n    x.go()\n    y.go()\n"
        }
    )

    kinds = {one.name: one.kind for one in seen.facts("a.py").declarations}
    assert {name: kinds[name] for name in ("Short", "UserId", "Old", "Movie")} == {
        "Short": "type",
        "UserId": "type",
        "Old": "type",
        "Movie": "class",
    }
    assert {line for _, callee, line in seen.calls if callee == "a.py:Foo.go"} == {10, 11}


def test_an_overloaded_function_is_the_one_that_is_implemented() -> None:
    seen = analysed(
        {
            "a.py": "from typing import overload\n"
            "@overload\ndef f(x: int) -> int: ...\n"
            "@overload\ndef f(x: str) -> str: ...\n"
            "def f(x): return x\n"
            "f(1)\n"
        }
    )

    (call,) = seen.resolution.calls["a.py"]
    assert call.callee.declaration.line == 6


def test_imports_inside_of_a_function_are_seen_there_alone() -> None:
    seen = analysed(
        {
            "tools.py": "def cut(): pass\n",
            "a.py": "def f():\n    from tools import cut\n    cut()\ndef g():\n    cut()\n",
        }
    )

    assert seen.calls == {("a.py:f", "tools.py:cut", 3)}
    assert seen.imports == {("a.py", "tools.py")}


def test_what_two_imports_claim_is_not_guessed_unless_one_is_missing() -> None:
    seen = analysed(
        {
            "one.py": "def f(): pass\ndef g(): pass\n",
            "two.py": "def f(): pass\n",
            "a.py": "if 1:\n    from one import f\nelse:\n    from two import f\n"
            "try:\n    from fast import g\nexcept ImportError:\n    from one import g\n"
            "f()\ng()\n",
        }
    )

    assert seen.calls == {("a.py", "one.py:g", 10)}


def test_a_member_of_a_class_with_an_unknown_base_is_not_guessed() -> None:
    seen = analysed(
        {
            "a.py": "import threading\n"
            "class A(threading.Thread):\n    def f(self):\n        self.start()\n"
            "class B(unknown_thing):\n    def f(self):\n        self.start()\n"
        }
    )

    assert (seen.counts.external, seen.counts.unresolved) == (1, 1)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(max_size=400), st.text(max_size=200).map(str.encode)))
def test_no_bytes_make_the_extraction_fail(source: bytes) -> None:
    facts = parsed("a.py", source)

    for declared in facts.declarations:
        assert 1 <= declared.line <= declared.end_line <= max(facts.lines, 1)
    assert all(1 <= call.line <= max(facts.lines, 1) for call in facts.calls)


_WORDS = st.sampled_from(
    re.findall(
        r"\S+|\n *",
        "def class f A ( ) : self . = , import from as with return yield lambda x y * ** @ [ ]\n"
        "async await for in if else try except global type -> | 'q' f'{' 1\n  \n ",
    )
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_WORDS, max_size=60).map(" ".join))
def test_no_heap_of_words_makes_the_analysis_fail(source: str) -> None:
    seen = analysed({"a.py": source, "b.py": "from a import *\nf().x().y()\n"})

    assert seen.counts.total == sum(len(f.calls) for f in seen.resolution.project.files.values())


def test_code_nested_without_end_is_read_all_the_same() -> None:
    deep = 20_000
    for source in (
        "f" + "(" * deep + ")" * deep,
        "x = " + "a." * deep + "b()",
        "x = " + "1 + " * deep + "f()",
        "x: " + "A[" * deep + "]" * deep,
        "".join(" " * level + "def f():\n" for level in range(300)) + " " * 300 + "g()\n",
    ):
        assert parsed("a.py", source).path == "a.py"


def test_what_is_broken_is_said_to_be_and_the_rest_is_read() -> None:
    facts = parsed(
        "a.py", "def whole():\n    pass\n\ndef half(:\n\ndef (x): pass\nfrom a.!b import c\n"
    )

    assert facts.broken
    assert "whole" in {declared.name for declared in facts.declarations}
    assert all(declared.name for declared in facts.declarations)
    assert not parsed("a.py", "x = 1\n").broken


def test_a_folder_without_an_init_is_a_package_only_for_what_is_in_it() -> None:
    seen = analysed(
        {
            "space/one.py": "def f(): pass\n",
            "space/deep/two.py": "def g(): pass\n",
            "build/tool.py": "def wheel(): pass\n",
            "a.py": "import space.one\nfrom space import one as uno\nfrom space.deep import two\n"
            "import build\nspace.one.f()\nuno.f()\ntwo.g()\nbuild.wheel()\n",
        }
    )

    assert seen.calls == {
        ("a.py", "space/one.py:f", 5),
        ("a.py", "space/one.py:f", 6),
        ("a.py", "space/deep/two.py:g", 7),
    }
    assert seen.imports == {
        ("a.py", "space/one.py"),
        ("a.py", "space/deep/two.py"),
        ("a.py", "build"),
    }


def test_of_two_functions_of_one_name_the_last_is_meant() -> None:
    seen = analysed(
        {
            "a.py": "def f():\n    pass\n\nf()\n\ndef run():\n    f()\n\n"
            "def f():\n    pass\n\nf()\n\n"
            "class A:\n    def m(self):\n        pass\n    def m(self):\n        pass\n"
            "    def go(self):\n        self.m()\n"
        }
    )
    calls = [(call.line, call.callee.declaration.line) for call in seen.resolution.calls["a.py"]]
    assert calls == [(4, 1), (7, 9), (12, 9), (20, 17)]  # what line 4 calls was replaced later


def test_of_functions_that_a_condition_chooses_from_none_is_certain() -> None:
    one, two = "    def f():\n        pass\n", "    def f():\n        return 1\n"
    for chosen in (
        f"if x:\n{one}else:\n{two}",
        f"try:\n{one}except NameError:\n{two}",
        f"def f():\n    pass\n\nif x:\n{two}",
        f"if x:\n{one}else:\n    f = other\n",
        f"match x:\n    case 1:\n{indent(one, '    ')}    case _:\n{indent(two, '    ')}",
    ):
        source = f"def other():\n    pass\n\n{chosen}\ndef run():\n    f()\n"
        seen = analysed({"a.py": source, "b.py": "from a import f\n\nf()\n"})
        assert seen.calls == set(), chosen
        assert "a.py:f" in seen.declared


def test_of_methods_and_inner_functions_that_a_condition_chooses_from_none_is_certain() -> None:
    f = "        def f(*a):\n            pass\n"
    chosen = f"if x:\n{f}    else:\n{f}"
    for source in (
        f"class A(B):\n    {chosen}\n    def go(self):\n        self.f()\n",
        f"def go():\n    {chosen}\n    f()\n",
    ):
        seen = analysed({"a.py": f"class B:\n    def f(self):\n        pass\n\n{source}"})
        assert seen.calls == set(), source


def test_a_function_under_a_condition_that_nothing_rivals_is_found() -> None:
    seen = analysed(
        {
            "a.py": "if x:\n    def f():\n        pass\n\ndef g():\n    pass\n\n"
            "g = cached(g)\n\nif y:\n    class A:\n        def m(self):\n            f()\n\n"
            "def run():\n    f()\n    g()\n"
        }
    )
    assert seen.calls == {
        ("a.py:A.m", "a.py:f", 13),
        ("a.py:run", "a.py:f", 16),
        ("a.py:run", "a.py:g", 17),
    }


def test_a_variable_that_a_function_gives_another_value_is_not_known() -> None:
    source = "def one():\n    pass\n\nh = one\n\ndef run():\n    h()\n"
    assert ("a.py:run", "a.py:one") in analysed({"a.py": source}).callees
    change = "\ndef two():\n    pass\n\ndef change():\n    global h\n    h = two\n"
    seen = analysed({"a.py": source + change})
    assert seen.calls == set()
    assert seen.possible == {("a.py:run", "a.py:one", 7), ("a.py:run", "a.py:two", 7)}


def test_what_is_called_by_itself_is_followed_once() -> None:
    seen = analysed(
        {
            "a.py": """\
def make(): return Odd()
def kind(): return Odder
class Odd:
    __call__ = make()
    __iter__ = make()
    __enter__ = make()
class Odder:
    __init__ = kind()
Odd()()
Odder()
for each in Odd(): each()
with Odd() as odd: odd()
"""
        }
    )
    assert ("a.py", "a.py:Odd") in seen.callees
    assert ("a.py:kind", "a.py:Odder") not in seen.callees
