"""The graph and its document: what is in them, in which view, and that they are always the same."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coatcheck_codegraph.document import Additions, Processing, write_document
from coatcheck_codegraph.graph import OPERATIONS, Node, Operation, relationship
from coatcheck_codegraph.project import Project
from coatcheck_codegraph.resolve import resolve
from packages.codegraph.tests.graphs import parsed

SOURCES = {
    "top.py": "import os\nfrom shop.cart import Cart\n\n"
    "def main():\n    Cart().add()\n    Cart().add()\n",
    "shop/__init__.py": "",
    "shop/cart.py": "from shop.base import Base\n"
    "class Cart(Base):\n"
    "    def add(self, item: str = 'CANARY') -> None:\n"
    "        self.keep(); self.keep()\n"
    "type Items = list[str]\n",
    "shop/base.py": "class Base:\n    def keep(self):\n"
    "        def inner(): pass\n        inner()\n",
    "package.json": '{"name": "shop"}',
    "broken.py": "x = = 1\n",
}
PROCESSING = Processing(
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:02Z",
    2000,
    {"timeout": 1},
    {"too_large": 2},
    {"symlink": 3},
)


def document(
    sources: Mapping[str, str] = SOURCES,
    operation: Operation = "supermodel",
    more: Additions | None = None,
) -> bytes:
    project = Project([parsed(path, source) for path, source in sources.items()])
    out = io.BytesIO()
    write_document(out, operation, resolve(project), PROCESSING, more)
    return out.getvalue()


def read(operation: Operation = "supermodel") -> dict[str, Any]:
    result: dict[str, Any] = json.loads(document(operation=operation))
    return result


def named(result: dict[str, Any]) -> dict[str, str]:
    """A name for each id: the label and what it stands for."""
    names = {}
    for node in result["graph"]["nodes"]:
        label = node["labels"][0]
        told = node["properties"]
        what = told.get("path") or told.get("qualifiedName") or told["name"]
        names[node["id"]] = f"{label} {what}"
    return names


def edges(result: dict[str, Any], kind: str) -> list[tuple[str, str]]:
    names = named(result)
    return sorted(
        (names[one["startNode"]], names[one["endNode"]])
        for one in result["graph"]["relationships"]
        if one["type"] == kind
    )


def test_directories_contain_directories_and_files() -> None:
    result = read()

    assert edges(result, "contains") == [
        ("Directory shop", "File shop/__init__.py"),
        ("Directory shop", "File shop/base.py"),
        ("Directory shop", "File shop/cart.py"),
    ]


def test_files_declare_what_is_at_their_top_and_declarations_what_is_inside_of_them() -> None:
    assert edges(read(), "declares") == [
        ("Class Base", "Function Base.keep"),
        ("Class Cart", "Function Cart.add"),
        ("File shop/base.py", "Class Base"),
        ("File shop/cart.py", "Class Cart"),
        ("File shop/cart.py", "Type Items"),
        ("File top.py", "Function main"),
        ("Function Base.keep", "Function Base.keep.inner"),
    ]


def test_what_others_call_by_another_name_has_that_name_too() -> None:
    nested = {"a/b/c.py": "class Base:\n    pass\n\n\nclass Heir(Base):\n    pass\n"}
    result = json.loads(document(SOURCES | nested))

    assert edges(result, "child_directory") == [("Directory a", "Directory a/b")]
    assert ("Directory a/b", "File a/b/c.py") in edges(result, "contains_file")
    assert ("Class Heir", "Class Base") in edges(result, "extends")
    assert ("File a/b/c.py", "Class Heir") in edges(result, "declares_class")
    assert edges(result, "defines_function") == [
        ("Class Base", "Function Base.keep"),
        ("Class Cart", "Function Cart.add"),
        ("File top.py", "Function main"),
        ("Function Base.keep", "Function Base.keep.inner"),
    ]


def test_imports_lead_to_files_and_external_modules() -> None:
    result = read()

    assert edges(result, "imports") == [
        ("File shop/cart.py", "File shop/base.py"),
        ("File top.py", "File shop/cart.py"),
        ("File top.py", "Module os"),
    ]
    lines = {
        one["properties"]["line"]
        for one in result["graph"]["relationships"]
        if one["type"] == "imports"
    }
    assert lines == {1, 2}


def test_each_call_is_a_relationship_of_its_own_with_its_line() -> None:
    result = read()
    names = named(result)
    calls = [one for one in result["graph"]["relationships"] if one["type"] == "calls"]

    assert sorted(
        (names[one["startNode"]], names[one["endNode"]], one["properties"]["line"]) for one in calls
    ) == [
        ("Function Base.keep", "Function Base.keep.inner", 4),
        ("Function Cart.add", "Function Base.keep", 4),
        ("Function Cart.add", "Function Base.keep", 4),
        ("Function main", "Class Cart", 5),
        ("Function main", "Class Cart", 6),
        ("Function main", "Function Cart.add", 5),
        ("Function main", "Function Cart.add", 6),
    ]
    assert len({one["id"] for one in calls}) == len(calls)


def test_nodes_say_where_they_are_and_functions_what_they_take() -> None:
    nodes = {
        node["properties"].get("qualifiedName", node["properties"].get("path")): node
        for node in read()["graph"]["nodes"]
    }

    assert nodes["Cart.add"] == {
        "id": nodes["Cart.add"]["id"],
        "labels": ["Function"],
        "properties": {
            "name": "add",
            "qualifiedName": "Cart.add",
            "filePath": "shop/cart.py",
            "language": "python",
            "startLine": 3,
            "endLine": 4,
            "signature": "add(self, item: str) -> None",
        },
    }
    assert nodes["top.py"]["properties"] == {
        "name": "top.py",
        "path": "top.py",
        "filePath": "top.py",
        "language": "python",
        "lines": 6,
        "startLine": 1,
        "endLine": 6,
    }
    assert nodes["broken.py"]["properties"]["syntaxErrors"] is True


def test_nothing_of_a_file_but_names_and_places_is_in_its_document() -> None:
    for operation in OPERATIONS:
        assert b"CANARY" not in document(operation=operation)


DECLARED = ("defines_function", "declares_class")


@pytest.mark.parametrize(
    ("operation", "labels", "types"),
    [
        ("dependency", {"File", "Module"}, {"imports"}),
        ("call", {"File", "Class", "Function", "Type"}, {"declares", *DECLARED, "calls"}),
        (
            "domain",
            {"File", "Class", "Function", "Module"},
            {"declares", *DECLARED, "imports", "calls"},
        ),
        (
            "parse",
            {"Directory", "File", "Class", "Function", "Type"},
            {"contains", "contains_file", "declares", *DECLARED, "inherits", "extends"},
        ),
        (
            "supermodel",
            {"Directory", "File", "Class", "Function", "Type", "Module"},
            {
                *("contains", "contains_file", "declares", *DECLARED, "imports", "calls"),
                *("inherits", "extends"),
            },
        ),
    ],
)
def test_each_operation_shows_its_part_of_the_graph_and_counts_it(
    operation: Operation, labels: set[str], types: set[str]
) -> None:
    result = read(operation)
    nodes, relationships = result["graph"]["nodes"], result["graph"]["relationships"]
    stats = result["stats"]

    assert {node["labels"][0] for node in nodes} == labels
    assert {one["type"] for one in relationships} == types
    assert stats["nodeCount"] == len(nodes)
    assert stats["relationshipCount"] == len(relationships)
    assert sum(stats["nodeTypes"].values()) == len(nodes)
    assert set(stats["relationshipTypes"]) == types
    ids = {node["id"] for node in nodes}
    assert len(ids) == len(nodes)
    assert {one["startNode"] for one in relationships} <= ids
    assert {one["endNode"] for one in relationships} <= ids


def test_the_statistics_tell_what_became_of_files_and_calls() -> None:
    result = read()

    assert result["stats"] | {"nodeTypes": 0, "relationshipTypes": 0} == {
        "nodeCount": 15,
        "relationshipCount": 31,
        "nodeTypes": 0,
        "relationshipTypes": 0,
        "filesProcessed": 6,
        "filesFailed": 1,
        "filesFailedByReason": {"timeout": 1},
        "filesSkipped": 2,
        "filesSkippedByReason": {"too_large": 2},
        "entriesSkipped": 3,
        "entriesSkippedByReason": {"symlink": 3},
        "filesWithSyntaxErrors": 1,
        "classes": 2,
        "functions": 4,
        "types": 1,
        "calls": {
            "total": 7,
            "resolved": 7,
            "external": 0,
            "unresolved": 0,
            "resolvedRate": 1.0,
        },
        "processingTimeMs": 2000,
    }
    assert result["metadata"] == {
        "analysisStartTime": "2026-01-01T00:00:00Z",
        "analysisEndTime": "2026-01-01T00:00:02Z",
        "fileCount": 9,
        "languages": ["python"],
    }
    assert result["generatedAt"] == "2026-01-01T00:00:02Z"


def test_what_is_added_is_counted_and_comes_before_within_and_after_the_graph() -> None:
    domain = Node("domain-1", ("Domain",), {"name": "Shop"})
    more = Additions(
        head={"runId": "r"},
        stats={"domainCount": 1},
        nodes=[domain],
        relationships=lambda: [relationship("dependsOn", domain.id, domain.id)],
        fields={"relationships": lambda: [{"from": "Shop"}, {"from": "Till"}], "none": tuple},
    )
    plain, result = json.loads(document()), json.loads(document(more=more))

    assert next(iter(result)) == "runId"
    assert list(result)[-3:] == ["graph", "relationships", "none"]
    assert result["relationships"] == [{"from": "Shop"}, {"from": "Till"}]
    assert result["none"] == []
    assert result["graph"]["nodes"][-1]["id"] == "domain-1"
    assert result["graph"]["relationships"][-1]["type"] == "dependsOn"
    stats = result["stats"]
    assert stats["domainCount"] == stats["nodeTypes"]["Domain"] == 1
    assert stats["nodeCount"] == plain["stats"]["nodeCount"] + 1
    assert stats["relationshipCount"] == plain["stats"]["relationshipCount"] + 1


def test_the_order_in_which_files_are_parsed_makes_no_difference() -> None:
    expected = document()
    paths = list(SOURCES)
    for seed in range(5):
        random.Random(seed).shuffle(paths)
        assert document({path: SOURCES[path] for path in paths}) == expected


def test_processes_with_different_hash_seeds_write_the_same_bytes() -> None:
    root = Path(__file__).resolve().parents[3]
    program = (
        "import sys\n"
        "from packages.codegraph.tests.test_graph import document\n"
        "sys.stdout.buffer.write(document())\n"
    )
    written = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": os.pathsep.join([str(root), str(root / "packages/codegraph/src")]),
            },
            capture_output=True,
            check=True,
            cwd=root,
        ).stdout
        for seed in ("1", "2")
    ]

    assert written == [document(), document()]


def test_an_id_stands_for_the_same_thing_in_two_archives_that_share_it() -> None:
    changed = SOURCES | {"top.py": "def other(): pass\n"}
    before = {node["id"] for node in json.loads(document())["graph"]["nodes"]}
    after = {
        node["id"]: node["properties"] for node in json.loads(document(changed))["graph"]["nodes"]
    }

    new = [told["name"] for key, told in after.items() if key not in before]
    assert new == ["other"]


def test_two_declarations_of_one_name_have_ids_of_their_own() -> None:
    result = json.loads(document({"a.py": "def f(): pass\ndef f(): pass\n"}))

    ids = {node["id"] for node in result["graph"]["nodes"]}
    assert len(ids) == 3


def test_a_call_of_several_candidates_has_a_relationship_to_each_marked_as_possible() -> None:
    source = (
        "def one(): pass\ndef two(): pass\ndef sure(): pass\n"
        "def run(flag):\n    act = one if flag else two\n    act()\n    sure()\n"
    )
    graph = json.loads(document({"a.py": source}, operation="call"))["graph"]
    names = {node["id"]: node["properties"]["name"] for node in graph["nodes"]}
    assert [
        (names[each["endNode"]], each["properties"])
        for each in graph["relationships"]
        if each["type"] == "calls"
    ] == [
        ("one", {"line": 6, "possible": True}),
        ("two", {"line": 6, "possible": True}),
        ("sure", {"line": 7}),
    ]


def test_calls_that_lead_out_are_relationships_if_asked_for() -> None:
    source = (
        "import os.path as p\nfrom json import loads as read\nimport http.client\n"
        "def run(text):\n    p.join(text)\n    read(text)\n    len(text)\n"
        "    made = http.client.HTTPConnection(text)\n    made.close()\n    unknown(text)\n"
    )
    project = Project([parsed("a.py", source)])
    out = io.BytesIO()
    write_document(out, "call", resolve(project, external_calls=True), PROCESSING)
    result = json.loads(out.getvalue())
    graph = result["graph"]
    names = {node["id"]: node for node in graph["nodes"]}
    called = [
        (names[each["endNode"]]["labels"], names[each["endNode"]]["properties"]["name"])
        for each in graph["relationships"]
        if each["type"] == "calls"
    ]
    external = ["os.path.join", "json.loads", "len", "http.client.HTTPConnection", "http.close"]
    assert called == [(["ExternalFunction"], name) for name in external]
    assert result["stats"]["nodeTypes"]["ExternalFunction"] == len(external)
    assert b"ExternalFunction" not in document({"a.py": source}, operation="call")
