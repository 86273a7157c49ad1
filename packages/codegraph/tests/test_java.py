"""Java: what is seen in its files, and which names lead where."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coatcheck_codegraph.languages import load
from packages.codegraph.tests.graphs import analysed, parsed

SHAPES = """\
package shop.shapes;

public interface Shape {
    double area();
    default String label() { return name() + area(); }
    String name();
}
"""
CIRCLE = """\
package shop.shapes;

public class Circle extends Round implements Shape {
    private final Pen pen = new Pen();
    public Circle(double radius) {
        super(radius);
        this.pen.draw();
    }
    public double area() { return scale() * helper(); }
    public String name() { return "c"; }
    private double helper() { return super.scale(); }
    static Circle unit() { return new Circle(1); }
}
"""
ROUND = """\
package shop.shapes;

class Round {
    Round(double radius) { }
    double scale() { return 1; }
}
"""
PEN = """\
package shop.shapes;

class Pen {
    Pen draw() { return this; }
    void lift() { }
}
"""


def shapes(**more: str) -> dict[str, str]:
    files = {"Shape": SHAPES, "Circle": CIRCLE, "Round": ROUND, "Pen": PEN, **more}
    return {f"src/main/java/shop/shapes/{name}.java": text for name, text in files.items()}


def at(name: str) -> str:
    file = name.split(".", 1)[0]
    return f"src/main/java/shop/shapes/{file}.java:{name}"


def test_methods_of_the_object_its_class_and_its_ancestors_are_found() -> None:
    seen = analysed(shapes())

    assert {
        (at("Circle.area"), at("Round.scale"), 9),
        (at("Circle.area"), at("Circle.helper"), 9),
        (at("Circle.helper"), at("Round.scale"), 11),
        (at("Shape.label"), at("Shape.name"), 5),
        (at("Shape.label"), at("Shape.area"), 5),
    } <= seen.calls


def test_constructors_are_what_new_this_and_super_call() -> None:
    seen = analysed(
        shapes(
            Two="""\
package shop.shapes;
class Two {
    Two() { this(1); }
    Two(int count) { new Pen(); }
}
"""
        )
    )

    assert (at("Circle.Circle"), at("Round.Round"), 6) in seen.calls
    assert (at("Circle.unit"), at("Circle.Circle"), 12) in seen.calls
    assert (at("Two.Two"), at("Two.Two"), 3) in seen.calls
    assert (at("Two.Two"), at("Pen"), 4) in seen.calls  # no constructor: the class itself
    assert (at("Circle"), at("Pen"), 4) in seen.calls  # in the value of a field


def test_fields_locals_and_returned_types_lead_to_methods() -> None:
    seen = analysed(
        shapes(
            Use="""\
package shop.shapes;
class Use {
    private Pen pen;
    void all(Circle given) {
        pen.draw().lift();
        Circle typed = given;
        typed.area();
        var inferred = new Circle(2);
        inferred.name();
        Circle.unit().area();
        ((Circle) (Object) given).name();
        for (Shape each : shapes()) each.area();
        Object o = given;
        if (o instanceof Pen found) found.lift();
    }
    java.util.List<Shape> shapes() { return null; }
}
"""
        )
    )
    calls = {(callee, line) for caller, callee, line in seen.calls if caller == at("Use.all")}

    assert calls == {
        (at("Pen.draw"), 5),
        (at("Pen.lift"), 5),
        (at("Circle.area"), 7),
        (at("Circle.Circle"), 8),
        (at("Circle.name"), 9),
        (at("Circle.unit"), 10),
        (at("Circle.area"), 10),
        (at("Circle.name"), 11),
        (at("Shape.area"), 12),
        (at("Use.shapes"), 12),
        (at("Pen.lift"), 14),
    }


def test_imports_of_classes_of_everything_and_of_static_members_are_followed() -> None:
    seen = analysed(
        {
            "pkg-1.0/a/Tools.java": """\
package a;
public class Tools {
    public static void fix() { }
    public static void tune() { }
    public static class Box { public void open() { } }
}
""",
            "pkg-1.0/b/One.java": """\
package b;
import a.Tools;
import a.Tools.Box;
import static a.Tools.fix;
class One { void go(Box box) { Tools.tune(); fix(); box.open(); } }
""",
            "pkg-1.0/b/Two.java": """\
package b;
import a.*;
import static a.Tools.*;
import java.util.Map;
import static org.junit.Assert.*;
class Two { void go() { new Tools.Box().open(); tune(); a.Tools.fix(); } }
""",
        }
    )

    assert seen.callees == {
        ("pkg-1.0/b/One.java:One.go", "pkg-1.0/a/Tools.java:Tools.tune"),
        ("pkg-1.0/b/One.java:One.go", "pkg-1.0/a/Tools.java:Tools.fix"),
        ("pkg-1.0/b/One.java:One.go", "pkg-1.0/a/Tools.java:Tools.Box.open"),
        ("pkg-1.0/b/Two.java:Two.go", "pkg-1.0/a/Tools.java:Tools.Box"),
        ("pkg-1.0/b/Two.java:Two.go", "pkg-1.0/a/Tools.java:Tools.Box.open"),
        ("pkg-1.0/b/Two.java:Two.go", "pkg-1.0/a/Tools.java:Tools.tune"),
        ("pkg-1.0/b/Two.java:Two.go", "pkg-1.0/a/Tools.java:Tools.fix"),
    }
    assert seen.imports == {
        ("pkg-1.0/b/One.java", "pkg-1.0/a/Tools.java"),
        ("pkg-1.0/b/Two.java", "pkg-1.0/a/Tools.java"),
        ("pkg-1.0/b/Two.java", "java.util"),
        ("pkg-1.0/b/Two.java", "org.junit"),
    }


def test_what_a_class_extends_and_implements_is_found() -> None:
    assert analysed(shapes()).inherits == {
        (at("Circle"), at("Round")),
        (at("Circle"), at("Shape")),
    }


def test_calls_of_the_platform_and_of_external_types_are_external() -> None:
    seen = analysed(
        {
            "A.java": """\
import java.util.*;
import java.io.File;
class A extends Thread {
    List<String> names = new ArrayList<>();
    void go(File file) {
        System.out.println("x".trim());
        names.add(file.getName());
        setDaemon(true);
        java.nio.file.Files.size(null);
    }
}
"""
        }
    )

    assert seen.calls == set()
    assert (seen.counts.external, seen.counts.unresolved) == (7, 0)


def test_what_is_not_certain_stays_unresolved() -> None:
    seen = analysed(
        {
            "A.java": """\
class A {
    void go(java.util.function.Function<B, B> f, B[] many) {
        f.apply(x -> x.run());
        many[0].run();
        missing();
        unknown.run();
    }
}
""",
            "B.java": "class B { void run() { } }\n",
            "x/C.java": "package x; class C { void missing() { } }\n",
        }
    )

    assert seen.calls == set()
    assert seen.counts.unresolved == 4


def test_a_variable_of_one_name_in_two_blocks_has_the_type_of_its_block() -> None:
    seen = analysed(
        shapes(
            Use="""\
package shop.shapes;
class Use {
    Pen item;
    void go() {
        for (Pen each : null) each.lift();
        for (Circle each : null) each.area();
        run(item -> item.lift());
    }
    void run(Object o) { }
}
"""
        )
    )
    calls = {(callee, line) for caller, callee, line in seen.calls if caller == at("Use.go")}

    assert calls == {(at("Pen.lift"), 5), (at("Circle.area"), 6), (at("Use.run"), 7)}


def test_a_field_and_a_method_of_one_name_are_told_apart() -> None:
    seen = analysed(
        {
            "A.java": """\
class A {
    B size;
    int size() { return 0; }
    void go(int size) { size(); this.size.run(); this.size(); }
}
class B { void run() { } }
"""
        }
    )

    assert seen.callees == {("A.java:A.go", "A.java:A.size"), ("A.java:A.go", "A.java:B.run")}


def test_classes_inside_of_classes_see_what_is_around_them() -> None:
    seen = analysed(
        {
            "Outer.java": """\
class Outer {
    void shared() { }
    class Inner { void go() { shared(); Outer.this.shared(); own(); } void own() { } }
    void later() {
        new Thread(new Runnable() {
            public void run() { shared(); again(); }
            void again() { }
        });
    }
    enum Kind {
        BIG(1) { void mark() { tell(); } }, SMALL(2);
        Kind(int size) { }
        void tell() { }
    }
    record Pair(Kind left, int right) {
        Pair { Kind.SMALL.tell(); }
        void go() { left.tell(); }
    }
}
"""
        }
    )
    outer = "Outer.java:Outer"

    assert {
        (f"{outer}.Inner.go", f"{outer}.shared", 3),
        (f"{outer}.Inner.go", f"{outer}.Inner.own", 3),
        (f"{outer}.later.Runnable$1.run", f"{outer}.shared", 6),
        (f"{outer}.later.Runnable$1.run", f"{outer}.later.Runnable$1.again", 6),
        (f"{outer}.Kind", f"{outer}.Kind.Kind", 11),
        (f"{outer}.Kind.Kind$2.mark", f"{outer}.Kind.tell", 11),
        (f"{outer}.Pair.Pair", f"{outer}.Kind.tell", 16),
        (f"{outer}.Pair.go", f"{outer}.Kind.tell", 17),
    } == seen.calls


def test_a_type_parameter_is_what_it_extends() -> None:
    seen = analysed(
        {
            "A.java": """\
class A<T extends B> {
    T held;
    <U extends C> void go(U given, V other) { held.run(); given.stop(); other.run(); }
}
class B { void run() { } }
class C { void stop() { } }
class T { void run() { } }
"""
        }
    )

    assert seen.callees == {("A.java:A.go", "A.java:B.run"), ("A.java:A.go", "A.java:C.stop")}


def test_declarations_have_their_lines_and_signatures_without_values() -> None:
    facts = parsed(
        "A.java",
        """\
package a.b;

@Deprecated(since = "secret")
public class A {
    @Named("secret")
    <T> java.util.List<@Size(max = 42) T> find(final int[] xs, @Named("secret") String... names)
            throws Exception {
        return null;
    }
    A(int /* secret */ count) { }
    @interface Marker { String value() default "secret"; }
}
""",
    )
    found = {one.qualified: (one.kind, one.line, one.end_line) for one in facts.declarations}
    signatures = {one.qualified: one.signature for one in facts.declarations}

    assert facts.package == ("a", "b")
    assert facts.lines == 12
    assert found == {
        "A": ("class", 3, 12),
        "A.find": ("function", 5, 9),
        "A.A": ("function", 10, 10),
        "A.Marker": ("class", 11, 11),
        "A.Marker.value": ("function", 11, 11),
    }
    assert signatures["A.find"] == "java.util.List<T> find(int[] xs, String... names)"
    assert signatures["A.A"] == "A(int count)"
    assert not any("secret" in signature or "42" in signature for signature in signatures.values())


def test_code_nested_without_end_and_broken_code_give_what_can_be_made_out() -> None:
    deep = "class A { void go() { x(" + "(" * 50_000 + "y" + ")" * 50_000 + "); } }"
    chain = "class A { A a() { return this; } void go() { a()" + ".a()" * 2_000 + "; } }"
    nested = "class A { " * 3_000

    assert parsed("Deep.java", deep).declarations[0].name == "A"
    assert len(parsed("Chain.java", chain).calls) == 2_001
    assert parsed("Nested.java", nested).broken
    broken = parsed("Broken.java", "class A { void good() { b(); } void bad( { }")
    assert broken.broken
    assert "A.good" in {one.qualified for one in broken.declarations}


def test_the_number_of_arguments_tells_overloads_apart() -> None:
    seen = analysed(
        {
            "K.java": """class K {
    K() { this(1); }
    K(int a) { }
    void go() { go(1); go(1, 2, 3, 4); new K(); new K(/* one */ 2); }
    void go(int a) { }
    void go(int a, int b, int... more) { }
}
"""
        }
    )

    assert seen.runs("K.java", 2) == {3}  # and not itself
    assert seen.runs("K.java", 4) == {2, 3, 5, 6}
    assert seen.counts.unresolved == 0


def test_overloads_that_take_as_many_are_not_guessed() -> None:
    seen = analysed(
        {
            "A.java": """class A {
    void f(int a) { }
    void f(String a) { }
    A f(int a, int b) { return this; }
    B f(int a, String b) { return null; }
    A g() { return this; }
    A g(int a) { return this; }
    void go() { f(1); f(null); f(1, 2); f(1, 2).g(); g(1).g(); }
}
class B { void g() { } }
"""
        }
    )

    # What `f(1, 2)` gives is not known, but both of `g` give an A.
    assert seen.runs("A.java", 8) == {6, 7}
    assert seen.counts.resolved == 2
    assert seen.counts.unresolved == 5


def test_overloads_that_do_not_fit_leave_the_call_to_those_of_the_base() -> None:
    seen = analysed(
        {
            "A.java": """class A {
    void f(int a, int b) { }
    void f(int a) { }
    void one(int a) { }
}
class B extends A {
    B() { super(); this.f(1, 2); f(1); f(); one(); super.f(1); }
    void f() { }
    @Override void f(int a) { }
    void one(String a, int b) { }
}
"""
        }
    )

    # `one()` fits none of them: the nearest is meant.
    assert seen.runs("A.java", 7) == {1, 2, 3, 8, 9, 10}
    assert seen.counts.unresolved == 0


def test_a_record_has_a_constructor_that_it_does_not_declare() -> None:
    seen = analysed(
        {
            "R.java": """record R(int a, int b) {
    R(int a) { this(a, 0); }
}
record S(int a, int b) {
    S { }
    S(int a) { this(a, 0); }
}
record T(int a) {
    T(int given) { this.a = given; }
    T() { this(1); }
}
"""
        }
    )

    assert seen.runs("R.java", 2) == {1}
    assert seen.runs("R.java", 6) == {5}
    assert seen.runs("R.java", 10) == {9}


def test_what_an_object_of_a_class_of_its_own_does_is_not_what_its_base_does() -> None:
    seen = analysed(
        {
            "A.java": """class A {
    void x() { }
    void go() {
        new A() { void x() { } }.x();
        var a = new A() { void x() { } };
        a.x();
        new A().x();
    }
}
"""
        }
    )

    assert seen.runs("A.java", 4) == {1}  # the constructor alone
    assert seen.runs("A.java", 6) == set()
    assert seen.runs("A.java", 7) == {1, 2}


WORDS = (
    "class A { } ( ) < > . , ; new this super import static package * ? : -> @ \" ' // /* */ "
    "enum record interface int var x foo = instanceof case switch for try catch extends \n"
)


@given(
    st.lists(st.sampled_from(WORDS.split(" ")), max_size=60).map(" ".join) | st.text(max_size=200)
)
def test_no_text_is_too_much(text: str) -> None:
    facts = load("java").extract("A.java", text.encode())

    for declaration in facts.declarations:
        assert 1 <= declaration.line <= declaration.end_line <= facts.lines
    assert all(1 <= call.line <= facts.lines for call in facts.calls)
    analysed({"A.java": text})
