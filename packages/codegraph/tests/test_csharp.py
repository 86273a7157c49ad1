"""C#: what is seen in its files, and which names lead where."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coatcheck_codegraph.languages import load
from packages.codegraph.tests.graphs import analysed, parsed

BASE = """\
namespace Shop.Core
{
    public abstract class Base
    {
        protected Base(int size) { }
        protected virtual void Save() { Touch(); }
        static void Touch() { }
    }
}
"""
ORDER = """\
using System;
using Shop.Core;

namespace Shop.Orders;

public partial class Order : Base, IDisposable
{
    private readonly Line _line = new();
    public Line First => _line.Copy();
    public Order() : this(1) { }
    public Order(int size) : base(size) { First.Print(); }
    protected override void Save() { base.Save(); this.Log(); }
    public void Dispose() => Save();
}
"""
MORE = """\
namespace Shop.Orders
{
    partial class Order
    {
        internal void Log() { Dispose(); _line?.Copy()?.Print(); }
    }
    public class Line
    {
        public Line Copy() => new(this);
        public Line() { }
        Line(Line other) { }
        public void Print() { Console.WriteLine(nameof(Print)); }
    }
}
"""
SHOP = {"src/Base.cs": BASE, "src/Order.cs": ORDER, "src/Order.More.cs": MORE}


def test_members_bases_constructors_and_the_other_parts_of_a_class_are_found() -> None:
    seen = analysed(SHOP)
    order, more, base = "src/Order.cs:Order", "src/Order.More.cs:Order", "src/Base.cs:Base"
    line = "src/Order.More.cs:Line"

    assert seen.calls == {
        (f"{base}.Save", f"{base}.Touch", 6),
        (order, f"{line}.Line", 8),
        (f"{order}.First", f"{line}.Copy", 9),
        (f"{order}.Order", f"{order}.Order", 10),
        (f"{order}.Order", f"{base}.Base", 11),
        (f"{order}.Order", f"{line}.Print", 11),
        (f"{order}.Save", f"{base}.Save", 12),
        (f"{order}.Save", f"{more}.Log", 12),
        (f"{order}.Dispose", f"{order}.Save", 13),
        (f"{more}.Log", f"{order}.Dispose", 5),
        (f"{more}.Log", f"{line}.Copy", 5),
        (f"{more}.Log", f"{line}.Print", 5),
        (f"{line}.Copy", f"{line}.Line", 9),
    }
    assert (seen.counts.external, seen.counts.unresolved) == (1, 0)
    assert seen.inherits == {(order, base)}
    assert seen.imports == {("src/Order.cs", "System"), ("src/Order.cs", "src/Base.cs")}


def test_usings_of_namespaces_static_classes_and_aliases_are_followed() -> None:
    seen = analysed(
        {
            "Tools.cs": """\
namespace A.B { public static class Tools { public static void Fix() { } }
public class Box { public static Box Make() { return null; } public void Open() { } } }
""",
            "Use.cs": """\
using static A.B.Tools;
using Crate = A.B.Box;
using Json = Newtonsoft.Json.Linq;
class Use
{
    void Go()
    {
        Fix();
        Crate.Make().Open();
        global::A.B.Tools.Fix();
        Json.JObject.Parse("x");
        global::System.Console.Beep();
    }
}
""",
            "Near.cs": """\
namespace A
{
    using B;
    namespace C { class Deep { void Go() { Tools.Fix(); B.Box.Make(); Near.Run(); } } }
    class Near { public static void Run() { new C.Deep(); } }
}
""",
        }
    )
    box, fix = "Tools.cs:Box", "Tools.cs:Tools.Fix"

    assert seen.calls == {
        ("Use.cs:Use.Go", fix, 8),
        ("Use.cs:Use.Go", f"{box}.Make", 9),
        ("Use.cs:Use.Go", f"{box}.Open", 9),
        ("Use.cs:Use.Go", fix, 10),
        ("Near.cs:C.Deep.Go", fix, 4),
        ("Near.cs:C.Deep.Go", f"{box}.Make", 4),
        ("Near.cs:C.Deep.Go", "Near.cs:Near.Run", 4),
        ("Near.cs:Near.Run", "Near.cs:C.Deep", 5),
    }
    assert (seen.counts.external, seen.counts.unresolved) == (2, 0)
    assert ("Use.cs", "Newtonsoft.Json") in seen.imports


def test_what_one_file_uses_for_all_is_seen_below_its_folder() -> None:
    files = {
        "app/Usings.cs": "global using Lib.Deep;\n",
        "app/sub/Use.cs": "class Use { void Go() { Tool.Run(); } }\n",
        "other/Use.cs": "class Other { void Go() { Tool.Run(); } }\n",
        "lib/Tool.cs": "namespace Lib.Deep; static class Tool { public static void Run() { } }\n",
    }
    seen = analysed(files)

    assert seen.callees == {("app/sub/Use.cs:Use.Go", "lib/Tool.cs:Tool.Run")}
    assert seen.counts.unresolved == 1


def test_typed_variables_lead_to_methods() -> None:
    seen = analysed(
        {
            "A.cs": """\
class A
{
    record Pair(B Left, int Right);
    B this[int at] { get { return Find(); } }
    B Find() { return null; }
    void Go(B given, object other, Pair pair)
    {
        given.Run();
        var made = new B();
        made.Run();
        var found = Find();
        found.Run();
        foreach (B each in null) each.Run();
        if (other is B one) one.Run();
        (other as B).Run();
        ((B)other).Run();
        Try(out B gotten);
        gotten.Run();
        pair.Left.Run();
        switch (other) { case B two: two.Run(); break; }
        void Local(B inner) { inner.Run(); }
        Local(null);
        try { } catch (Oops oops) { oops.Tell(); }
        B? maybe = null;
        maybe!.Run();
    }
    void Try(out B b) { b = null; }
}
class B { public void Run() { } }
class Oops : System.Exception { public void Tell() { } }
"""
        }
    )
    runs = {line for _, callee, line in seen.calls if callee == "A.cs:B.Run"}

    assert runs == {8, 10, 12, 13, 14, 15, 16, 18, 19, 20, 21, 25}
    assert ("A.cs:A.Go.Local", "A.cs:B.Run", 21) in seen.calls
    assert ("A.cs:A.Go", "A.cs:A.Go.Local", 22) in seen.calls
    assert ("A.cs:A.Go", "A.cs:Oops.Tell", 23) in seen.calls
    assert ("A.cs:A.this[]", "A.cs:A.Find", 4) in seen.calls
    assert seen.counts.unresolved == 0


def test_an_extension_method_is_called_on_what_it_extends_if_that_has_no_such_method() -> None:
    seen = analysed(
        {
            "B.cs": "namespace N; public class B { public void Own() { } "
            "public static bool IsNone(B b) => false; }\n",
            "Ext.cs": """\
namespace N;
static class Ext
{
    public static void Extra(this B b) { Helper(); b.Own(); }
    public static void Own(this B b) { }
    static void Helper() { }
    static void Go(B b) { b.Extra(); b.Own(); Ext.Extra(b); }
    public static bool IsNone(this B b) => B.IsNone(b) || b.IsNone();
}
""",
        }
    )

    assert seen.calls == {
        ("Ext.cs:Ext.Extra", "Ext.cs:Ext.Helper", 4),
        ("Ext.cs:Ext.Extra", "B.cs:B.Own", 4),
        ("Ext.cs:Ext.Go", "Ext.cs:Ext.Extra", 7),
        ("Ext.cs:Ext.Go", "B.cs:B.Own", 7),
        ("Ext.cs:Ext.IsNone", "B.cs:B.IsNone", 8),
        ("Ext.cs:Ext.IsNone", "Ext.cs:Ext.IsNone", 8),
    }


def test_what_is_not_certain_stays_unresolved() -> None:
    seen = analysed(
        {
            "A.cs": """\
class A
{
    void Go(dynamic any, B[] many)
    {
        many[0].Run();
        Each(x => x.Run());
        Missing();
        Twice.Run();
    }
    void Each(object o) { }
}
class B { public void Run() { } }
""",
            "one/T.cs": "namespace One { class Twice { public static void Run() { } } }\n",
            "two/T.cs": "namespace Two { class Twice { public static void Run() { } } }\n",
        }
    )

    assert seen.callees == {("A.cs:A.Go", "A.cs:A.Each")}
    assert seen.counts.unresolved == 4


def test_a_property_may_have_the_name_of_its_type() -> None:
    seen = analysed(
        {
            "A.cs": """\
class A
{
    public Color Color { get; set; } = Color.Make();
    void Go() { Color.Mix(); }
}
class Color { public static Color Make() { return null; } public void Mix() { } }
"""
        }
    )

    assert seen.callees == {("A.cs:A", "A.cs:Color.Make"), ("A.cs:A.Go", "A.cs:Color.Mix")}


def test_what_is_made_is_a_class_whatever_method_has_its_name() -> None:
    seen = analysed(
        {
            "A.cs": """\
class A
{
    public B Made() { return null; }
    void Go() { new Made().Run(); Made().Run(); var made = new Made(); made.Run(); }
}
class Made { public void Run() { } }
class B { public void Run() { } }
"""
        }
    )

    assert seen.callees == {
        ("A.cs:A.Go", "A.cs:Made"),
        ("A.cs:A.Go", "A.cs:Made.Run"),
        ("A.cs:A.Go", "A.cs:A.Made"),
        ("A.cs:A.Go", "A.cs:B.Run"),
    }
    assert seen.counts.resolved == 6


def test_a_file_of_two_namespaces_belongs_to_the_larger() -> None:
    seen = analysed(
        {
            "A.cs": """\
namespace System.Added { class Marker { } }
namespace My.App { class One { } class Two { void Go() { new One(); } } }
""",
            "B.cs": "namespace My.App; class Three { void Go() { new Two(); } }\n",
        }
    )

    assert seen.facts("A.cs").package == ("My", "App")
    assert seen.callees == {("A.cs:Two.Go", "A.cs:One"), ("B.cs:Three.Go", "A.cs:Two")}
    assert "A.cs:System.Added.Marker" in seen.declared


def test_directives_in_the_middle_of_code_do_not_hide_it() -> None:
    facts = parsed(
        "A.cs",
        """\
namespace N {
    class A
#if NET
        : B
#else
        : C
#endif
    {
        void Go(
#if NET
            int a) {
#else
            long a) {
#endif
            Run();
        }
        void Run() { }
    }
}
""",
    )

    assert facts.package == ("N",)
    assert not facts.broken
    assert [(one.qualified, one.line) for one in facts.declarations] == [
        ("A", 2),
        ("A.Go", 9),
        ("A.Run", 17),
    ]
    assert [call.line for call in facts.calls] == [15]


def test_declarations_have_their_lines_and_signatures_without_values() -> None:
    facts = parsed(
        "A.cs",
        """\
[Obsolete("secret")]
public class A<T> where T : new()
{
    [DllImport("secret")]
    static extern List<T> Find([In] ref int[] xs, string name = "secret", params object[] rest);
    public static A<T> operator +(A<T> left, A<T> right) => left;
    public static implicit operator int(A<T> a) => 42;
    ~A() { }
    public int Count { get { return 42; } }
    public int Plain { get; set; } = 42;
    delegate bool Test(T given);
    enum Kind { One = 42 }
    struct Point { }
    interface ICan { }
}
""",
    )
    found = {one.qualified: (one.kind, one.line, one.end_line) for one in facts.declarations}
    signatures = {one.qualified: one.signature for one in facts.declarations}

    assert found == {
        "A": ("class", 1, 15),
        "A.Find": ("function", 4, 5),
        "A.operator +": ("function", 6, 6),
        "A.operator int": ("function", 7, 7),
        "A.~A": ("function", 8, 8),
        "A.Count": ("function", 9, 9),
        "A.Test": ("type", 11, 11),
        "A.Kind": ("class", 12, 12),
        "A.Point": ("class", 13, 13),
        "A.ICan": ("class", 14, 14),
    }
    assert signatures["A.Find"] == "List<T> Find(int[] xs, string name, params object[] rest)"
    assert signatures["A.Count"] == "int Count"
    assert signatures["A.Test"] == "bool Test(T given)"
    assert not any("secret" in signature or "42" in signature for signature in signatures.values())


def test_code_nested_without_end_and_broken_code_give_what_can_be_made_out() -> None:
    deep = "class A { void Go() { X(" + "(" * 50_000 + "y" + ")" * 50_000 + "); } }"
    chain = "class A { A B() { return this; } void Go() { B()" + ".B()" * 2_000 + "; } }"

    assert parsed("Deep.cs", deep).lines == 1
    assert len(parsed("Chain.cs", chain).calls) == 2_001
    assert parsed("Nested.cs", "namespace N { " * 3_000).broken
    broken = parsed("Broken.cs", "class A { void Good() { B(); } void Bad( { }")
    assert broken.broken
    assert "Good" in {one.name for one in broken.declarations}


def test_the_number_of_arguments_tells_overloads_apart() -> None:
    seen = analysed(
        {
            "A.cs": """class A {
    public A() : this(1) { }
    public A(int a) { }
    static A() { }
    void F() { F(1); F(1, 2); F(1, 2, 3, 4); new A(); A made = new(1); }
    void F(int a, int b = 2) { }
    void F(int a, int b, int c, params int[] more) { }
}
class B : A {
    B() : base(1) { }
    B(int a) : base() { }
}
"""
        }
    )

    assert seen.runs("A.cs", 2) == {3}
    assert seen.runs("A.cs", 5) == {2, 3, 6, 7}
    assert seen.runs("A.cs", 10) == {3}
    assert seen.runs("A.cs", 11) == {2}
    assert seen.counts.unresolved == 0


def test_overloads_that_take_as_many_are_not_guessed() -> None:
    seen = analysed(
        {
            "A.cs": """partial class A {
    void F(int a) { }
    void G() { F(1); }
}
""",
            "B.cs": """partial class A {
    void F(string a) { }
}
""",
        }
    )

    assert seen.places == set()
    assert seen.counts.unresolved == 1


def test_what_is_written_for_an_interface_or_for_a_type_is_another_function() -> None:
    seen = analysed(
        {
            "A.cs": """interface I { void F(); }
partial class A : I {
    void I.F() { }
    public void F() { }
    T Get<T>(string a) => default;
    string Get(string a) => a;
    partial void Later(int a);
    partial void Later(int a) { }
    void Go() { F(); Get("x"); Later(1); }
}
"""
        }
    )

    assert seen.runs("A.cs", 9) == {4, 8}
    assert seen.counts.unresolved == 1  # whether a T or a string, types alone tell


def test_parts_of_a_class_overload_each_other() -> None:
    seen = analysed(
        {
            "A.cs": "partial class A { void F(int a) { } void G() { F(1, 2); } }",
            "B.cs": "partial class A {\n void F(int a, int b) { }\n}",
        }
    )

    assert seen.places == {("A.cs", 1, "B.cs", 2)}


def test_what_an_extension_extends_is_not_counted_among_its_arguments() -> None:
    seen = analysed(
        {
            "A.cs": """class A {
    public void Own(int a, int b) { }
    void Go() {
        this.Add(1);
        this.Add(1, 2);
        this.Own(1);
        X.Add(this, 1);
    }
}
static class X {
    public static void Add(this A a, int b) { }
    public static void Add(this A a, int b, int c) { }
    public static void Own(this A a, int b) { }
}
"""
        }
    )

    assert seen.runs("A.cs", 4) == {11}
    assert seen.runs("A.cs", 5) == {12}
    assert seen.runs("A.cs", 6) == {13}
    assert seen.runs("A.cs", 7) == {11}


def test_a_struct_and_a_class_with_parameters_have_constructors_that_they_do_not_declare() -> None:
    seen = analysed(
        {
            "A.cs": """struct S {
    public S(int a) { }
    static S Make() => new S();
    static S Make(int a) => new S(a);
}
class C(int a, int b) {
    C() : this(1, 2) { }
}
"""
        }
    )

    assert seen.runs("A.cs", 3) == {1}
    assert seen.runs("A.cs", 4) == {2}
    assert seen.runs("A.cs", 7) == {6}


WORDS = (
    "class A { } ( ) < > . , ; new this base using static namespace * ? : => [ ] \" ' // /* */ "
    "enum record interface int var x Foo = is as case switch foreach in try catch ?. ! :: global "
    "partial delegate event operator #if #else #endif \n"
)


@given(
    st.lists(st.sampled_from(WORDS.split(" ")), max_size=60).map(" ".join) | st.text(max_size=200)
)
def test_no_text_is_too_much(text: str) -> None:
    facts = load("csharp").extract("A.cs", text.encode())

    for declaration in facts.declarations:
        assert 1 <= declaration.line <= declaration.end_line <= facts.lines
    assert all(1 <= call.line <= facts.lines for call in facts.calls)
    analysed({"A.cs": text})
