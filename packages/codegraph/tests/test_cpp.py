"""What is seen in C++: namespaces, classes over header and source, constructors, templates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coatcheck_codegraph.facts import Declaration
from packages.codegraph.tests.graphs import analysed, parsed

SHAPE_H = """\
#pragma once
#include <memory>
namespace draw {
class Shape {
 public:
  explicit Shape(int sides);
  virtual ~Shape() = default;
  int area() const;
  static Shape *create(int sides = 4);
 protected:
  int sides_;
};
class Square : public Shape {
 public:
  Square() : Shape(4) {}
  void grow() { area(); this->area(); }
  std::unique_ptr<Shape> inner_;
};
int count();
}
"""
SHAPE_CC = """\
#include "shape.h"
namespace draw {
Shape::Shape(int sides) : sides_(sides) {}
int Shape::area() const { return count(); }
Shape *Shape::create(int sides) { return new Shape(sides); }
int count() { return 1; }
}
"""


def _declared(source: str, path: str = "a.cpp") -> dict[str, Declaration]:
    return {found.qualified: found for found in parsed(path, source).declarations}


def test_methods_are_found_where_they_are_defined() -> None:
    seen = analysed({"shape.h": SHAPE_H, "shape.cc": SHAPE_CC})
    assert ("shape.h:draw.Square.grow", "shape.cc:draw.Shape.area", 16) in seen.calls
    assert ("shape.cc:draw.Shape.area", "shape.cc:draw.count", 4) in seen.calls
    assert ("shape.cc:draw.Shape.create", "shape.cc:draw.Shape.Shape", 5) in seen.calls
    assert ("shape.h:draw.Square.Square", "shape.cc:draw.Shape.Shape", 15) in seen.calls
    assert ("shape.h:draw.Square", "shape.h:draw.Shape") in seen.inherits


def test_a_namespace_is_one_in_all_files_and_needs_no_name_inside_of_itself() -> None:
    seen = analysed(
        {
            "shape.h": SHAPE_H,
            "shape.cc": SHAPE_CC,
            "more.cc": '#include "shape.h"\nnamespace draw {\nint twice() { return count(); }\n}\n',
            "main.cc": '#include "shape.h"\nint main() { return draw::count(); }\n',
        }
    )
    assert ("more.cc:draw.twice", "shape.cc:draw.count", 3) in seen.calls
    assert ("main.cc:main", "shape.cc:draw.count", 2) in seen.calls


def test_objects_are_of_the_types_that_they_are_declared_with() -> None:
    seen = analysed(
        {
            "shape.h": SHAPE_H,
            "shape.cc": SHAPE_CC,
            "main.cc": '#include "shape.h"\n'
            "#include <vector>\n"
            "using draw::Shape;\n"
            "void run(const Shape &given, draw::Square *square) {\n"
            "  given.area();\n"
            "  square->grow();\n"
            "  square->inner_->area();\n"
            "  auto made = std::make_unique<Shape>(3);\n"
            "  made->area();\n"
            "  Shape::create()->area();\n"
            "  std::vector<Shape> all;\n"
            "  for (auto &one : all) one.area();\n"
            "  all[0].area();\n"
            "  static_cast<Shape *>(square)->area();\n"
            "  Shape local(3);\n"
            "}\n",
        }
    )
    area, create = "shape.cc:draw.Shape.area", "shape.cc:draw.Shape.create"
    constructor = "shape.cc:draw.Shape.Shape"
    assert {call[1:] for call in seen.calls if call[0] == "main.cc:run"} == {
        (area, 5),
        ("shape.h:draw.Square.grow", 6),
        (area, 7),
        (constructor, 8),
        (area, 9),
        (create, 10),
        (area, 10),
        (area, 12),
        (area, 13),
        (area, 14),
        (constructor, 15),
    }


def test_a_smart_pointers_own_methods_are_not_those_of_what_it_owns() -> None:
    seen = analysed(
        {
            "a.cc": "#include <memory>\n"
            "struct Job { void reset(); };\n"
            "void Job::reset() {}\n"
            "void run(std::unique_ptr<Job> job) {\n  job->reset();\n  job.reset();\n}\n"
        }
    )
    assert seen.calls == {("a.cc:run", "a.cc:Job.reset", 5)}


def test_a_namespace_that_is_used_as_a_whole_needs_no_name() -> None:
    seen = analysed(
        {
            "a.h": "namespace util { namespace text { int trim(); } }\n",
            "a.cc": '#include "a.h"\nint util::text::trim() { return 1; }\n',
            "main.cc": '#include "a.h"\nusing namespace util::text;\n'
            "int run() { return trim(); }\n",
            "other.cc": '#include "a.h"\nnamespace t = util::text;\n'
            "int run() { return t::trim(); }\n",
        }
    )
    assert ("main.cc:run", "a.cc:util.text.trim", 3) in seen.calls
    assert ("other.cc:run", "a.cc:util.text.trim", 3) in seen.calls


def test_a_name_from_the_top_is_not_that_of_a_namespace() -> None:
    seen = analysed(
        {
            "a.h": "int size();\nnamespace n { int size(); }\n",
            "a.cc": '#include "a.h"\nint size() { return 1; }\nint n::size() { return 2; }\n'
            "namespace n { int both() { return size() + ::size(); } }\n",
        }
    )
    assert seen.callees == {
        ("a.cc:n.both", "a.cc:n.size"),
        ("a.cc:n.both", "a.cc:size"),
    }


def test_a_class_that_is_only_announced_is_the_one_of_its_name() -> None:
    seen = analysed(
        {
            "engine.h": "class Engine { public: void start() {} };\n",
            "car.h": "class Engine;\nclass Car { Engine *engine_; public: void drive(); };\n",
            "car.cc": '#include "car.h"\n#include "engine.h"\n'
            "void Car::drive() { engine_->start(); }\n",
        }
    )
    assert seen.calls == {("car.cc:Car.drive", "engine.h:Engine.start", 3)}


def test_base_methods_by_name_overloads_and_operators() -> None:
    seen = analysed(
        {
            "a.cc": "struct Base { virtual void go() {} };\n"
            "struct Derived : Base {\n"
            "  void go() override { Base::go(); put(1); put(1, 2); }\n"
            "  void put(int one) {}\n"
            "  void put(int one, int two) {}\n"
            "  bool operator==(const Derived &other) const { return true; }\n"
            "  operator bool() const { return true; }\n"
            "};\n"
        }
    )
    assert ("a.cc:Derived.go", "a.cc:Base.go", 3) in seen.calls
    assert ("a.cc:Derived.go", "a.cc:Derived.put", 3) in seen.calls
    assert {"a.cc:Derived.operator==", "a.cc:Derived.operator bool"} <= seen.declared


def test_overloads_each_have_their_definition() -> None:
    facts = parsed("a.cc", "struct A { int f(int a); int f(char *b); };\n")
    assert [found.signature for found in facts.declarations[1:]] == [
        "int f(int a)",
        "int f(char *b)",
    ]
    seen = analysed(
        {
            "a.h": "int f(int a);\nint f(char *text);\n",
            "a.cc": '#include "a.h"\nint f(char *t) { return 2; }\nint f(int b) { return 1; }\n',
            "main.cc": '#include "a.h"\nint run() { return f(1); }\n',
        }
    )
    assert seen.calls == {("main.cc:run", "a.cc:f", 2)}
    lines = {
        found.declaration.line: seen.facts(path).declarations[index].line
        for (path, index), found in seen.resolution.definitions.items()
    }
    assert lines == {3: 1, 2: 2}


def test_a_parameter_of_a_template_is_no_class_of_that_name() -> None:
    seen = analysed(
        {
            "a.cc": "struct Node { void visit() {} };\n"
            "template <typename Node> void walk(Node node) { node.visit(); }\n"
            "template <class T> class Box { public: T held; void open() { held.visit(); } };\n"
            "void run(Box<Node> box) { box.open(); walk<Node>(Node()); }\n"
        }
    )
    assert seen.callees == {
        ("a.cc:run", "a.cc:Box.open"),
        ("a.cc:run", "a.cc:walk"),
        ("a.cc:run", "a.cc:Node"),
    }


def test_a_lambda_with_a_name_is_a_function_and_one_without_is_not() -> None:
    seen = analysed(
        {
            "a.cc": "void helper(int n) {}\n"
            "void run() {\n"
            "  auto twice = [](int n) { helper(n); };\n"
            "  twice(1);\n"
            "  each([](int n) { helper(n); });\n"
            "}\n"
        }
    )
    assert seen.calls == {
        ("a.cc:run.twice", "a.cc:helper", 3),
        ("a.cc:run", "a.cc:run.twice", 4),
        ("a.cc:run", "a.cc:helper", 5),
    }


def test_the_standard_library_is_external_and_unknown_objects_are_unresolved() -> None:
    seen = analysed(
        {
            "a.cc": "#include <string>\n"
            "void run(std::string text) {\n"
            "  text.size();\n  std::move(text);\n  unknown()->size();\n}\n"
        }
    )
    assert seen.calls == set()
    assert seen.imports == {("a.cc", "string")}
    assert seen.counts.external >= 2


def test_a_member_of_an_unknown_object_is_not_guessed_by_its_name() -> None:
    seen = analysed(
        {
            "a.cc": "struct Only { void special() {} };\n"
            "template <class T> void run(T thing) { thing.special(); }\n"
        }
    )
    assert seen.calls == set()
    assert seen.counts.unresolved == 1


def test_a_class_is_seen_behind_the_macro_that_exports_it() -> None:
    declared = _declared(
        "class MY_API Parser : public Base {\n public:\n  int parse(int n = 42);\n};\n"
        "struct EXPORT(x) Token {\n  int kind;\n};\n"
    )
    assert {name: found.kind for name, found in declared.items()} == {
        "Parser": "class",
        "Parser.parse": "function",
        "Token": "class",
    }
    assert declared["Parser"].line == 1
    assert declared["Parser"].bases[0].steps[0].name == "Base"
    assert declared["Parser.parse"].signature == "int parse(int n)"


def test_c_functions_are_called_across_the_languages() -> None:
    seen = analysed(
        {
            "lib.h": 'extern "C" {\nint old(int n);\n}\n',
            "plain.h": "int older(int n);\n",
            "lib.c": "int old(int n) { return n; }\nint older(int n) { return n; }\n",
            "main.cpp": '#include "lib.h"\n#include "plain.h"\n'
            "int run() { return old(older(1)); }\n",
        }
    )
    assert seen.calls == {("main.cpp:run", "lib.c:old", 3), ("main.cpp:run", "lib.c:older", 3)}


def test_types_and_nested_classes_are_declared() -> None:
    declared = _declared(
        "namespace a::b {\n"
        "template <typename T> struct Map { struct Entry { T key; }; using key_type = T; };\n"
        "enum class Color : int { Red = 3 };\n"
        "typedef Map<int> Ints;\n"
        "}\n"
    )
    assert {name: found.kind for name, found in declared.items()} == {
        "a": "namespace",
        "a.b": "namespace",
        "a.b.Map": "class",
        "a.b.Map.Entry": "class",
        "a.b.Map.key_type": "type",
        "a.b.Color": "class",
        "a.b.Ints": "type",
    }


@given(
    st.text(
        alphabet=st.sampled_from("abT:~{}()[];,*&#<>=\n ") | st.characters(codec="utf-8"),
    )
)
def test_any_text_gives_facts_whose_lines_are_in_range(source: str) -> None:
    facts = parsed("a.cpp", source)
    assert all(1 <= one.line <= one.end_line <= facts.lines for one in facts.declarations)
    assert all(1 <= call.line <= facts.lines for call in facts.calls)


@given(st.lists(st.sampled_from(SHAPE_H.split() + SHAPE_CC.split()), max_size=60))
def test_any_order_of_the_words_of_the_language_gives_facts(words: list[str]) -> None:
    facts = parsed("a.h", " ".join(words))
    assert facts.lines == 1


def test_the_number_of_arguments_tells_overloads_apart() -> None:
    seen = analysed(
        {
            "a.h": """#pragma once
class Base {
public:
    Base();
    Base(int a, int b = 2);
    void log(const char *format, ...);
    void log(void) { }
};
int parse(int a);
int parse(int a, int b);
""",
            "a.cpp": """#include "a.h"
Base::Base() : Base(1) { }
Base::Base(int a, int b) { log(); }
void Base::log(const char *format, ...) { }
int parse(int a) { return parse(a, 1); }
int parse(int a, int b) { Base made(a, b); Base{}; return a; }
""",
            "b.cpp": """#include "a.h"
class Heir : public Base {
    Heir() : Base(1, 2) { log("x", 1, 2); new Base(); }
};
int use(int a) { return parse(a); }
""",
        }
    )

    assert {
        ("a.cpp", 2, "a.cpp", 3),  # by the default value in the header
        ("a.cpp", 3, "a.h", 7),
        ("a.cpp", 5, "a.cpp", 6),
        ("a.cpp", 6, "a.cpp", 3),
        ("a.cpp", 6, "a.cpp", 2),
        ("b.cpp", 3, "a.cpp", 3),
        ("b.cpp", 3, "a.cpp", 4),
        ("b.cpp", 3, "a.cpp", 2),
        ("b.cpp", 5, "a.cpp", 5),
    } == seen.places
    assert seen.counts.unresolved == 0


def test_overloads_that_take_as_many_are_not_guessed() -> None:
    seen = analysed(
        {
            "a.cpp": """struct Value {
    Value() { }
    Value(int a) { }
    Value(const char *a) { }
    int &get() { return a; }
    const int &get() const { return a; }
    int a;
};
template <class... T> void pass(T... all) { take(all...); }
void take(int a) { }
void take(int a, int b) { }
void use(Value &v) { Value one(1); v.get(); pass(1, 2); }
"""
        }
    )

    assert seen.places == {("a.cpp", 12, "a.cpp", 9)}
    assert seen.counts.unresolved == 3


def test_a_promise_is_kept_by_the_overload_that_takes_as_many() -> None:
    seen = analysed(
        {
            "a.h": """#pragma once
class Reader {
public:
    void read(int a);
    virtual void read(int a, int b) = 0;
};
""",
            "a.cpp": """#include "a.h"
void Reader::read(int a) { read(a, 1); }
""",
        }
    )

    assert seen.places == {("a.cpp", 2, "a.h", 5)}


def test_what_a_header_has_for_c_plus_plus_and_for_c_is_told_apart() -> None:
    for condition in ("#ifdef __cplusplus", "#if defined(__cplusplus)"):
        seen = analysed(
            {
                "env.h": "struct Table { int size; };\n"
                "class Wrapped {\npublic:\n    int size() { return 1; }\n};\n"
                f"{condition}\ntypedef Wrapped Env;\n#else\ntypedef Table *Env;\n#endif\n",
                "a.cpp": '#include "env.h"\nint run(Env *env) { return env->size(); }\n',
            }
        )
        assert seen.calls == {("a.cpp:run", "env.h:Wrapped.size", 2)}, condition


def test_overloads_are_not_rivals_because_one_of_them_is_under_a_condition() -> None:
    seen = analysed(
        {
            "a.cpp": "void put(int a) {}\n#ifdef WIDE\nvoid put(int a, int b) {}\n#endif\n"
            "void run() { put(1); }\n"
        }
    )
    assert seen.calls == {("a.cpp:run", "a.cpp:put", 5)}
