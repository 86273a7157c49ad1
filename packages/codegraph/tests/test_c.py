"""What is seen in C: includes, prototypes and their definitions, macros, structs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coatcheck_codegraph.facts import Declaration, Ref
from packages.codegraph.tests.graphs import analysed, parsed


def _declared(source: str, path: str = "a.c") -> dict[str, Declaration]:
    return {found.qualified: found for found in parsed(path, source).declarations}


def test_a_call_leads_to_a_function_of_the_same_file_and_has_its_line() -> None:
    seen = analysed(
        {"a.c": "int one(void) {\n  return 1;\n}\nint two(void) {\n  return one();\n}\n"}
    )
    assert seen.calls == {("a.c:two", "a.c:one", 5)}
    two = seen.facts("a.c").declarations[1]
    assert (two.line, two.end_line) == (4, 6)


def test_a_prototype_and_its_definition_are_one_function() -> None:
    seen = analysed(
        {
            "src/main.c": '#include "list.h"\nint main(void) { return list_size(0); }\n',
            "src/list.h": "struct list;\nint list_size(struct list *list);\n",
            "src/list.c": '#include "list.h"\nint list_size(struct list *list) { return 0; }\n',
        }
    )
    assert seen.calls == {("src/main.c:main", "src/list.c:list_size", 2)}
    assert set(seen.resolution.definitions) == {("src/list.h", 0)}  # it is no node by itself
    assert seen.imports == {("src/main.c", "src/list.h"), ("src/list.c", "src/list.h")}


def test_a_prototype_in_the_calling_file_leads_to_the_one_definition_there_is() -> None:
    seen = analysed(
        {
            "a.c": "extern int helper(int);\nint run(void) { return helper(1); }\n",
            "b.c": "int helper(int value) { return value; }\n",
        }
    )
    assert seen.calls == {("a.c:run", "b.c:helper", 2)}


def test_a_header_is_seen_through_the_headers_that_include_it() -> None:
    seen = analysed(
        {
            "main.c": '#include "all.h"\nvoid run(void) { inner(); }\n',
            "all.h": '#include "parts/inner.h"\n',
            "parts/inner.h": '#include "../all.h"\nvoid inner(void);\n',
            "parts/inner.c": "void inner(void) {}\n",
        }
    )
    assert ("main.c:run", "parts/inner.c:inner", 2) in seen.calls
    assert ("parts/inner.h", "all.h") in seen.imports


def test_a_function_that_no_included_header_declares_is_not_guessed() -> None:
    seen = analysed(
        {
            "a.c": "void run(void) { hidden(); }\n",
            "b.c": "void hidden(void) {}\n",
        }
    )
    assert seen.calls == set()
    assert (seen.counts.unresolved, seen.counts.external) == (1, 0)


def test_static_functions_of_one_name_stay_in_their_files() -> None:
    source = "static int helper(void) {{ return {0}; }}\nint run{0}(void) {{ return helper(); }}\n"
    seen = analysed({"a.c": source.format(1), "b.c": source.format(2)})
    assert seen.calls == {("a.c:run1", "a.c:helper", 2), ("b.c:run2", "b.c:helper", 2)}


def test_a_static_function_of_another_file_does_not_keep_a_promise() -> None:
    seen = analysed(
        {
            "a.c": '#include "h.h"\nvoid run(void) { helper(); }\n',
            "h.h": "void helper(void);\n",
            "b.c": "static void helper(void) {}\n",
        }
    )
    assert seen.calls == {("a.c:run", "h.h:helper", 2)}


def test_two_definitions_as_near_as_each_other_keep_no_promise() -> None:
    seen = analysed(
        {
            "a.c": '#include "h.h"\nvoid run(void) { helper(); }\n',
            "h.h": "void helper(void);\n",
            "unix.c": "void helper(void) {}\n",
            "windows.c": "void helper(void) {}\n",
        }
    )
    assert seen.calls == {("a.c:run", "h.h:helper", 2)}


def test_of_two_copies_of_a_library_the_nearer_one_is_meant() -> None:
    seen = analysed(
        {
            "app/main.c": "#include <zlite.h>\nvoid run(void) { inflate_all(); }\n",
            "app/vendor/zlite.h": "void inflate_all(void);\n",
            "app/vendor/zlite.c": "void inflate_all(void) {}\n",
            "old/vendor/zlite.h": "void inflate_all(void);\n",
            "old/vendor/zlite.c": "void inflate_all(void) {}\n",
        }
    )
    assert seen.calls == {("app/main.c:run", "app/vendor/zlite.c:inflate_all", 2)}
    assert ("app/main.c", "app/vendor/zlite.h") in seen.imports


def test_an_inline_function_of_a_header_and_a_file_that_is_included_whole_are_seen() -> None:
    seen = analysed(
        {
            "a.c": '#include "h.h"\n#include "table.c"\nvoid run(void) { fast(); add(); }\n',
            "h.h": "static inline int fast(void) { return 1; }\n",
            "table.c": "static void add(void) {}\n",
        }
    )
    assert seen.callees == {("a.c:run", "h.h:fast"), ("a.c:run", "table.c:add")}


def test_macros_are_called_as_functions_are_and_may_be_another_name_of_one() -> None:
    seen = analysed(
        {
            "h.h": "#define MAX(a, b) ((a) > (b) ? (a) : (b))\n"
            "#define allocate my_allocate\nvoid *my_allocate(int size);\n",
            "a.c": '#include "h.h"\nvoid run(void) { MAX(1, 2); allocate(3); }\n',
            "m.c": "void *my_allocate(int size) { return 0; }\n",
        }
    )
    assert seen.callees == {("a.c:run", "h.h:MAX"), ("a.c:run", "m.c:my_allocate")}
    assert _declared("#define MAX(a, b) ((a) > 12)\n")["MAX"].signature == "#define MAX(a, b)"


def test_pointers_to_functions_are_not_taken_for_functions_of_their_names() -> None:
    seen = analysed(
        {
            "a.c": "struct ops { void (*open)(int); };\n"
            "void open_it(int n) {}\n"
            "void callback(int n) {}\n"
            "void run(struct ops *ops, void (*callback)(int)) {\n"
            "  ops->open(1);\n"
            "  callback(2);\n"
            "  void (*open_it)(int) = 0;\n"
            "  open_it(3);\n"
            "}\n"
        }
    )
    assert seen.calls == set()
    assert seen.counts.unresolved == 3


def test_what_the_archive_does_not_declare_is_external_where_something_is_included() -> None:
    seen = analysed(
        {
            "a.c": "#include <stdio.h>\n#include <Python.h>\n"
            'void run(void) { printf("x"); Py_DECREF(0); }\n'
        }
    )
    assert seen.imports == {("a.c", "stdio.h"), ("a.c", "Python.h")}
    assert (seen.counts.external, seen.counts.unresolved) == (2, 0)


def test_a_standard_header_is_not_a_file_of_the_same_name() -> None:
    seen = analysed({"src/a.c": "#include <string.h>\n", "compat/string.h": "int x;\n"})
    assert seen.imports == {("src/a.c", "string.h")}


def test_structs_unions_enums_and_typedefs_are_declared_by_their_names() -> None:
    declared = _declared(
        "typedef struct node { struct node *next; } node_t;\n"
        "typedef struct { int x; } point;\n"
        "typedef struct same { int y; } same;\n"
        "union either { int a; };\n"
        "enum color { RED, GREEN = 7 };\n"
        "typedef int (*callback)(int, char *);\n"
        "struct only_announced;\n"
    )
    assert {name: found.kind for name, found in declared.items()} == {
        "node": "class",
        "node_t": "type",
        "point": "class",
        "same": "class",
        "either": "class",
        "color": "class",
        "callback": "type",
    }
    assert declared["node"].fields["next"].steps[0].name == "node"
    assert declared["node_t"].returns is not None


def test_a_signature_has_names_and_types_and_no_literal() -> None:
    declared = _declared(
        "static const char *name_of(const struct item *item, int sizes[16], ...) { return 0; }\n"
        "API_EXPORT int connect_to(const char *host /* not null */, int port);\n"
        "int (*chosen(int which))(char) { return 0; }\n"
    )
    assert declared["name_of"].signature == (
        "char *name_of(const struct item *item, int sizes[], ...)"
    )
    assert declared["name_of"].static
    assert declared["connect_to"].signature == "int connect_to(const char *host, int port)"
    assert declared["connect_to"].forward
    assert declared["chosen"].signature == "int *chosen(int which)"


def test_what_the_parser_makes_no_sense_of_does_not_get_into_a_signature() -> None:
    secret = "canary"
    sources = [
        f'int f(int a[sizeof("{secret}")], char *b /* {secret} */);',
        f"int f(int a @{secret}@, int b) {{ return 1; }}",
        f'struct {{ char x["{secret}"]; }} f(void) {{ return "{secret}"; }}',
        f"int f(void) {{ return {secret}; }}",
    ]
    for source in sources:
        facts = parsed("a.c", source)
        assert facts.declarations
        assert all(secret not in found.signature for found in facts.declarations)


def test_both_branches_of_a_condition_are_read_and_the_condition_is_not() -> None:
    seen = analysed(
        {
            "a.c": "void one(void) {}\nvoid two(void) {}\n"
            "void run(void) {\n"
            "#if defined(FAST) && LEVEL(3)\n  one();\n#else\n  two();\n#endif\n"
            "}\n"
        }
    )
    assert seen.calls == {("a.c:run", "a.c:one", 5), ("a.c:run", "a.c:two", 7)}
    assert seen.counts.total == 2


def test_declarations_for_cplusplus_alone_do_not_hide_what_follows() -> None:
    declared = _declared(
        '#ifdef __cplusplus\nextern "C" {\n#endif\nvoid first(void);\n'
        "#ifdef __cplusplus\n}\n#endif\nvoid second(void);\n",
        "a.h",
    )
    assert {"first", "second"} <= set(declared)


def test_a_header_with_the_syntax_of_cplusplus_is_read_as_such() -> None:
    facts = parsed("a.h", "namespace n {\nclass Parser {\n public:\n  int parse();\n};\n}\n")
    assert facts.language == "cpp"
    assert [found.qualified for found in facts.declarations] == ["n", "n.Parser", "n.Parser.parse"]
    assert parsed("b.h", "/* class of things */\nint f(void);\n").language == "c"


def test_broken_code_is_read_as_far_as_it_goes() -> None:
    facts = parsed("a.c", "int good(void) { return 1; }\nint bad(void { ]]\n")
    assert facts.broken
    assert facts.declarations[0].name == "good"


def test_code_that_is_nested_without_end_is_read() -> None:
    deep = "(" * 50_000 + "1" + ")" * 50_000
    facts = parsed("a.c", f"int f(void) {{ return {deep}; }}\nint g(void) {{ return f(); }}\n")
    assert facts.path == "a.c"
    assert parsed("a.c", f"void f(void) {{ a{'[0]' * 20_000}.g(); }}\n").calls
    assert parsed("a.c", f"void f(void) {{ {'g(' * 20_000}{')' * 20_000}; }}\n").calls
    assert parsed("a.h", "/*" * 50_000 + "\nclass A {").path == "a.h"
    assert parsed("a.cpp", "class A " * 2_000).path == "a.cpp"
    assert parsed("a.cpp", "namespace " + "::".join(["n"] * 5_000) + " { int f(); }\n").path
    blocks = "{" * 20_000 + "f();" + "}" * 20_000
    assert parsed("a.c", f"void f(void) {{ {blocks} }}\n").calls


@given(st.text(alphabet=st.sampled_from('abf{}()[];,*&#"<>=\n \\') | st.characters(codec="utf-8")))
def test_any_text_gives_facts_whose_lines_are_in_range(source: str) -> None:
    facts = parsed("a.c", source)
    assert all(1 <= one.line <= one.end_line <= facts.lines for one in facts.declarations)
    assert all(1 <= call.line <= facts.lines for call in facts.calls)
    assert all(isinstance(call.callee, Ref) for call in facts.calls)


def test_a_condition_does_not_take_a_name_from_the_standard_library() -> None:
    seen = analysed(
        {
            "a.c": '#include <stdio.h>\n#include "compat.h"\n'
            "void run(char *text) { snprintf(text, 1, text); }\n"
            "void again(char *text) { vsnprintf(text, 1, text, 0); }\n",
            "compat.h": "#ifndef COMPAT_H\n#define COMPAT_H\n#ifdef _MSC_VER\n"
            "#define snprintf own_snprintf\n"
            "int own_snprintf(char *text, int size, const char *format);\n"
            "int vsnprintf(char *text, int size, const char *format, void *rest) { return 0; }\n"
            "#endif\n#endif\n",
        }
    )
    assert seen.calls == set()
    assert (seen.counts.external, seen.counts.unresolved) == (2, 0)


def test_of_functions_and_macros_in_several_branches_none_is_certain() -> None:
    for other in ("int pick(void) { return 2; }", "#define pick() 2", "#define pick other"):
        seen = analysed(
            {
                "a.c": f"#if FAST\nint pick(void) {{ return 1; }}\n#else\n{other}\n#endif\n"
                "int run(void) { return pick(); }\n"
            }
        )
        assert seen.calls == set(), other
        assert "a.c:pick" in seen.declared


def test_a_prototype_leads_to_itself_if_the_preprocessor_chooses_what_defines_it() -> None:
    seen = analysed(
        {
            "pick.h": "int pick(void);\n",
            "pick.c": '#include "pick.h"\n#ifdef FAST\nint pick(void) { return 1; }\n#endif\n'
            "#ifndef FAST\nint pick(void) { return 2; }\n#endif\n",
            "a.c": '#include "pick.h"\nint run(void) { return pick(); }\n',
        }
    )
    assert seen.calls == {("a.c:run", "pick.h:pick", 2)}


def test_a_macro_under_a_condition_is_certain_under_that_condition_alone() -> None:
    seen = analysed(
        {
            "trace.h": "#ifdef TRACE\n#define trace(x) record(x)\n"
            "static void inside(void) { trace(1); }\n#endif\n"
            "static void outside(void) { trace(2); }\n",
            "a.c": '#include <trace/all.h>\n#include "trace.h"\nvoid run(void) { trace(3); }\n',
        }
    )
    assert seen.calls == {("trace.h:inside", "trace.h:trace", 3)}
    assert seen.counts.unresolved == 2


def test_the_guard_of_a_header_and_what_is_for_c_plus_plus_alone_are_no_conditions() -> None:
    for opening in ("#ifndef A_H", "#if !defined(A_H)"):
        seen = analysed(
            {
                "a.h": f'{opening}\n#define A_H\n#ifdef __cplusplus\nextern "C" {{\n#endif\n'
                "#define twice(x) ((x) + (x))\n#define again twice\nint once(int x);\n"
                "#ifdef __cplusplus\n}\n#endif\n#endif\n",
                "a.c": '#include "a.h"\nint once(int x) { return again(twice(x)); }\n'
                "int run(void) { return once(1); }\n",
            }
        )
        assert seen.calls == {
            ("a.c:once", "a.h:twice", 2),
            ("a.c:run", "a.c:once", 3),
        }, opening


def test_a_function_under_a_condition_that_nothing_rivals_is_found() -> None:
    seen = analysed(
        {"a.c": "#ifdef TEST\nvoid only(void) {}\nvoid run(void) { only(); }\n#endif\n"}
    )
    assert seen.calls == {("a.c:run", "a.c:only", 3)}
