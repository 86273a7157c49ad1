"""gojsonnet: an interpreter of Jsonnet in Go. What is asserted was read in its source."""

from __future__ import annotations

from functools import cache

from coatcheck_codegraph.project import Project
from packages.codegraph.tests.graphs import Seen, parsed, seen_in
from tests.corpus import package

GENERATED = "astgen/stdast.go"  # 8 MB of composite literals: nothing to learn, seconds to parse

IMPORT_STRING = "imports.go:importCache.importString"


@cache
def gojsonnet() -> Seen:
    folder = package("gojsonnet")
    paths = [folder / "go.mod", *sorted(folder.rglob("*.go"))]
    return seen_in(
        Project(
            [
                parsed(path.relative_to(folder).as_posix(), path.read_bytes())
                for path in paths
                if path != folder / GENERATED
            ]
        )
    )


def test_calls_lead_to_the_functions_and_methods_that_they_run() -> None:
    assert {
        ("vm.go:MakeVM", "error_formatter.go:termErrorFormatter", 80),
        ("vm.go:MakeVM", "imports.go:makeImportCache", 82),
        ("vm.go:VM.flushCache", "imports.go:makeImportCache", 90),
        ("vm.go:VM.flushValueCache", "imports.go:importCache.flushValueCache", 96),
        ("vm.go:VM.ExtVar", "vm.go:vmExt", 106),
        ("vm.go:VM.ExtVar", "vm.go:VM.flushValueCache", 107),
        (IMPORT_STRING, "imports.go:importCache.importData", 151),
        ("imports.go:importCache.importBinary", "thunks.go:readyThunk", 167),
        ("imports.go:importCache.importBinary", "value.go:intToValue", 167),
        ("imports.go:nodeToPV", "interpreter.go:makeInitialEnv", 173),
        ("imports.go:codeToPV", "internal/program/program.go:SnippetToAST", 182),
        ("imports.go:codeToPV", "imports.go:nodeToPV", 191),
        ("imports.go:importCache.importCode", "imports.go:importCache.importAST", 196),
        ("imports.go:importCache.importCode", "interpreter.go:interpreter.evaluatePV", 213),
        ("builtins.go:binaryBuiltin.evalCall", "builtins.go:flattenArgs", 2007),
        ("builtins.go:binaryBuiltin.evalCall", "builtins.go:binaryBuiltin.parameters", 2007),
        ("builtins.go:ternaryBuiltin.evalCall", "builtins.go:ternaryBuiltin.parameters", 2041),
        ("thunks.go:NativeFunction.evalCall", "thunks.go:NativeFunction.evalCall.call", 286),
        (
            "internal/formatter/sort_imports.go:sortGroup",
            "internal/formatter/sort_imports.go:duplicatedVariables",
            32,
        ),
        ("internal/formatter/sort_imports.go:splitFodder", "ast/fodder.go:FodderAppend", 84),
        ("internal/formatter/sort_imports.go:splitFodder", "ast/fodder.go:FodderElement", 97),
        ("internal/parser/parser.go:parser.parseParameter", "ast/ast.go:Parameter", 205),
        (
            "internal/parser/parser.go:parser.parseParameter",
            "internal/parser/parser.go:parser.popExpect",
            206,
        ),
    } <= gojsonnet().calls


def test_imports_lead_to_packages_of_the_module_or_to_the_standard_library() -> None:
    assert {
        ("imports.go", "fmt"),
        ("imports.go", "io/ioutil"),
        ("imports.go", "path/filepath"),
        ("imports.go", "internal/program/program.go"),
        ("vm.go", "runtime/debug"),
        ("vm.go", "internal/program/program.go"),
        ("internal/formatter/sort_imports.go", "ast/fodder.go"),
        ("internal/formatter/sort_imports.go", "sort"),
        ("internal/program/desugarer.go", "internal/errors/static_error.go"),
    } <= gojsonnet().imports


def test_embedded_structs_and_interfaces_are_inherited_from() -> None:
    assert {
        ("ast/ast.go:Apply", "ast/ast.go:NodeBase"),
        ("value.go:valueArray", "value.go:valueBase"),
        ("value.go:valueString", "value.go:value"),
        ("internal/formatter/fix_parens.go:FixParens", "internal/pass/pass.go:Base"),
    } <= gojsonnet().inherits


def test_what_leaves_the_module_or_is_not_evident_is_not_resolved() -> None:
    lines = {(caller, line) for caller, _, line in gojsonnet().calls}

    # sort.Slice of the standard library
    assert ("internal/formatter/sort_imports.go:sortGroup", 33) not in lines
    # i.Error(err.Error()), where err is the last of several results
    assert {
        callee
        for caller, callee, line in gojsonnet().calls
        if (caller, line) == (IMPORT_STRING, 153)
    } == {"interpreter.go:interpreter.Error"}
    # native.Func is a field that holds a function
    assert ("thunks.go:NativeFunction.evalCall.call", 284) not in lines
    # the elements of what a function returns, and a function in a field
    assert ("builtins.go:binaryBuiltin.evalCall", 2009) not in lines
    assert ("builtins.go:binaryBuiltin.evalCall", 2017) not in lines
    # updateFunc and compareFunc get one of two functions each
    assert not {("main_test.go:runTest", 353), ("main_test.go:runTest", 362)} & lines


def test_most_calls_within_the_module_are_resolved() -> None:
    assert gojsonnet().counts.resolved > 3_000
    assert gojsonnet().counts.resolved_rate > 0.95
