"""What clients that were published for this API by others read: every field, of the type they take.

Their models are described here in our own words: for each operation, what they refuse to do
without. A list describes its items, a dict the fields that must be there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from coatcheck.settings.parsers import GRAPH_OPERATIONS
from tests.deployment import Deployment
from tests.products.graphs.archives import post, zipped
from tests.products.graphs.model import Shown, completion, serving_a_model

CANARY: Final = "canary-51ab07"
MOMENT: Final = datetime
"""A text that is a moment."""

NODE = {"id": str, "labels": [str], "properties": dict}
RELATIONSHIP = {"id": str, "type": str, "startNode": str, "endNode": str, "properties": dict}
GRAPH = {"nodes": [NODE], "relationships": [RELATIONSHIP]}
METADATA = {
    "analysisStartTime": MOMENT,
    "analysisEndTime": MOMENT,
    "fileCount": int,
    "languages": [str],
}
COUNTED = {
    "nodeCount": int,
    "relationshipCount": int,
    "nodeTypes": {str: int},
    "relationshipTypes": {str: int},
}
CODE_GRAPH = {
    "generatedAt": MOMENT,
    "message": str,
    "stats": COUNTED
    | dict.fromkeys(("filesProcessed", "classes", "functions", "types", "processingTimeMs"), int),
    "metadata": METADATA,
    "graph": GRAPH,
}
SUBDOMAIN = {
    "name": str,
    "descriptionSummary": str,
    "files": [str],
    "functions": [str],
    "classes": [str],
}
DOMAIN = {
    "name": str,
    "descriptionSummary": str,
    "keyFiles": [str],
    "responsibilities": [str],
    "subdomains": [SUBDOMAIN],
}
CLASSIFICATION = {
    "runId": str,
    "graph": GRAPH,
    "metadata": METADATA,
    "domains": [DOMAIN],
    "relationships": [{"from": str, "to": str, "type": str, "strength": float, "reason": str}],
    "fileAssignments": [{"filePath": str, "domainName": str}],
    "functionAssignments": [{"functionId": str, "subdomainName": str, "parentDomain": str}],
    "unassignedFunctions": [{"functionId": str, "reason": str}],
    "classAssignments": [{"classId": str, "domainName": str}],
    "stats": COUNTED
    | dict.fromkeys(
        (
            *("domainCount", "subdomainCount", "assignedFileCount", "assignedFunctionCount"),
            *("assignedClassCount", "fileAssignments", "functionAssignments"),
            *("unassignedFunctions", "classAssignments"),
        ),
        int,
    ),
}
WHOLE = {
    "repo": str,
    "version": str,
    "schemaVersion": str,
    "generatedAt": MOMENT,
    "summary": {
        **dict.fromkeys(("filesProcessed", "classes", "functions", "types", "domains"), int),
        "primaryLanguage": str,
    },
    "stats": COUNTED,
    "metadata": METADATA,
    "domains": [DOMAIN],
    "graph": GRAPH,
    "artifacts": [{"id": str, "kind": str, "label": str, "metadata": dict}],
}
SHAPES: Final[Mapping[str, Any]] = {
    "dependency": CODE_GRAPH,
    "call": CODE_GRAPH,
    "parse": CODE_GRAPH,
    "domain": CLASSIFICATION,
    "supermodel": WHOLE,
}


def program() -> dict[str, str]:
    """Two parts of two pieces. Files of a piece use each other, and a few of the other piece."""
    files = {"shop/base.py": "class Base:\n    pass\n"}
    files["shop/heir.py"] = (
        "import os\n\nfrom shop.base import Base\n\n\nclass Heir(Base):\n    pass\n"
    )
    for part, pieces in (("billing", ("invoices", "taxes")), ("mail", ("letters", "stamps"))):
        for piece, other in (pieces, pieces[::-1]):
            for at in range(8):
                used = [(piece, number) for number in range(8) if number != at]
                used += [(other, (at + step) % 8) for step in range(3)]
                source = [f"from shop.{part}.{word} import {word}_{to}" for word, to in used]
                if (piece, at) == ("letters", 0):
                    source.append("from shop.billing.invoices import invoices_0")
                source += ["", f'NOTE = "{CANARY}"  # {CANARY}', "", ""]
                source += [f"class {piece.title()}{at}:", "    pass", "", ""]
                source += [f"def {piece}_{at}(value='{CANARY}'):"]
                source += [f"    {word}_{to}.{word}_{to}()" for word, to in used]
                files[f"shop/{part}/{piece}/{piece}_{at}.py"] = "\n".join(source) + "\n"
    return files


FILES = program()
ARCHIVE = zipped(FILES)


def check(value: Any, shape: Any, at: str) -> None:
    """Raises unless the value has what the shape wants."""
    if isinstance(shape, list):
        assert isinstance(value, list), at
        for number, item in enumerate(value):
            check(item, shape[0], f"{at}[{number}]")
    elif isinstance(shape, dict) and str in shape:
        assert isinstance(value, dict), at
        for name, item in value.items():
            check(item, shape[str], f"{at}.{name}")
    elif isinstance(shape, dict):
        assert isinstance(value, dict), at
        for name, inner in shape.items():
            assert name in value, f"{at}.{name}"
            check(value[name], inner, f"{at}.{name}")
    elif shape is MOMENT:
        assert datetime.fromisoformat(value).tzinfo is not None, at
    else:
        assert not isinstance(value, bool), at
        assert isinstance(value, (int, float) if shape is float else shape), at


async def result_of(
    deployment: Deployment, operation: str, archive: bytes = ARCHIVE
) -> dict[str, Any]:
    answer = await post(deployment.http, archive, operation, operation=operation, Prefer="wait=60")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["status"] == "completed", body
    assert CANARY not in answer.text
    result: dict[str, Any] = body["result"]
    return result


@pytest.mark.parametrize("operation", GRAPH_OPERATIONS)
async def test_every_field_that_they_read_is_there(deployment: Deployment, operation: str) -> None:
    await deployment.start_graphs_worker()
    result = await result_of(deployment, operation)
    check(result, SHAPES[operation], operation)
    stats, graph = result["stats"], result["graph"]
    assert stats["nodeCount"] == len(graph["nodes"])
    assert stats["relationshipCount"] == len(graph["relationships"])
    assert stats["nodeTypes"] == Counter(node["labels"][0] for node in graph["nodes"])
    assert stats["relationshipTypes"] == Counter(each["type"] for each in graph["relationships"])
    known = {node["id"] for node in graph["nodes"]}
    assert len(known) == len(graph["nodes"])
    assert len({each["id"] for each in graph["relationships"]}) == len(graph["relationships"])
    for each in graph["relationships"]:
        assert {each["startNode"], each["endNode"]} <= known
    for node in graph["nodes"]:
        if node["labels"][0] == "File":
            assert node["properties"]["filePath"] == node["properties"]["path"]
        if node["labels"][0] == "Module":
            assert node["labels"] == ["Module", "ExternalDependency"]


@pytest.mark.parametrize("operation", GRAPH_OPERATIONS)
async def test_an_archive_without_code_has_every_field_too(
    deployment: Deployment, operation: str
) -> None:
    await deployment.start_graphs_worker()
    result = await result_of(deployment, operation, zipped({"README.md": "# Nothing\n"}))
    check(result, SHAPES[operation], operation)


TWINS: Final = {
    "contains": {"contains_file", "child_directory"},
    "declares": {"defines_function", "declares_class"},
    "inherits": {"extends"},
}
"""Their names beside ours."""


@pytest.mark.parametrize("operation", ["parse", "supermodel"])
async def test_relationships_have_their_names_beside_ours(
    deployment: Deployment, operation: str
) -> None:
    await deployment.start_graphs_worker()
    result = await result_of(deployment, operation)
    labels = {node["id"]: node["labels"][0] for node in result["graph"]["nodes"]}
    found: dict[str, set[tuple[str, str]]] = {}
    for each in result["graph"]["relationships"]:
        found.setdefault(each["type"], set()).add((each["startNode"], each["endNode"]))
    for ours, theirs in TWINS.items():
        assert set().union(*(found[name] for name in theirs)) == found[ours]
    for name, label in (
        ("contains_file", "File"),
        ("child_directory", "Directory"),
        ("defines_function", "Function"),
        ("declares_class", "Class"),
        ("extends", "Class"),
    ):
        assert {labels[end] for _, end in found[name]} == {label}


async def test_domains_fall_into_subdomains_and_everything_belongs_to_one(
    deployment: Deployment,
) -> None:
    await deployment.start_graphs_worker()
    result = await result_of(deployment, "supermodel")
    nodes = {node["id"]: node for node in result["graph"]["nodes"]}
    related: dict[str, set[tuple[str, str]]] = {}
    for each in result["graph"]["relationships"]:
        related.setdefault(each["type"], set()).add((each["startNode"], each["endNode"]))

    by_name = {domain["name"]: domain for domain in result["domains"]}
    divided = [domain for domain in result["domains"] if domain["subdomains"]]
    assert {"Billing", "Mail"} <= {domain["name"] for domain in divided}
    for name, pieces in (("Billing", {"Invoices", "Taxes"}), ("Mail", {"Letters", "Stamps"})):
        assert {each["name"] for each in by_name[name]["subdomains"]} == pieces
    for domain in divided:
        assert domain["keyFiles"]
        assert domain["responsibilities"]
        of_domain = {
            each["filePath"]
            for each in result["fileAssignments"]
            if each["domainName"] == domain["name"]
        }
        inside = [path for each in domain["subdomains"] for path in each["files"]]
        assert sorted(inside) == sorted(of_domain)  # each in one
        assert len(domain["subdomains"]) > 1

    subdomains = {node["id"] for node in nodes.values() if node["labels"][0] == "Subdomain"}
    assert {start for start, _ in related["partOf"]} == subdomains
    names = {nodes[end]["properties"]["name"] for _, end in related["partOf"]}
    assert names == {domain["name"] for domain in divided}
    files = {node["id"] for node in nodes.values() if node["labels"][0] == "File"}
    homes = {
        start: nodes[end]["properties"]["name"]
        for start, end in related["belongsTo"]
        if nodes[end]["labels"][0] == "Domain"
    }
    assert files <= homes.keys()
    path = "shop/billing/taxes/taxes_1.py"
    (file,) = (node for node in nodes.values() if node["properties"].get("path") == path)
    assert homes[file["id"]] == "Billing"
    (function,) = (
        each for each in result["functionAssignments"] if each["qualifiedName"] == "taxes_1"
    )
    assert (function["subdomainName"], function["parentDomain"]) == ("Taxes", "Billing")
    (assigned,) = (each for each in result["classAssignments"] if each["qualifiedName"] == "Taxes1")
    assert assigned["domainName"] == "Billing"


async def test_domains_that_depend_on_each_other_are_related_by_name(
    deployment: Deployment,
) -> None:
    await deployment.start_graphs_worker()
    result = await result_of(deployment, "domain")
    (uses,) = (each for each in result["relationships"] if each["from"] == "Mail")
    assert (uses["to"], uses["type"]) == ("Billing", "dependsOn")
    assert 0 < uses["strength"] <= 1
    named = {
        node["id"]: node["properties"]["name"]
        for node in result["graph"]["nodes"]
        if node["labels"][0] == "Domain"
    }
    assert ("Mail", "Billing") in {
        (named[each["startNode"]], named[each["endNode"]])
        for each in result["graph"]["relationships"]
        if each["type"] == "dependsOn"
    }


def renaming(shown: Shown) -> str:
    renamed = [
        {"id": each["id"], "name": f'The "{each["id"]}"', "description": "It is a part."}
        for each in shown
    ]
    return completion({"domains": renamed})


async def test_a_name_that_a_model_gives_is_the_name_everywhere(dsn: str, tmp_path: Path) -> None:
    with serving_a_model() as model:
        model.says = renaming
        llm = {"graphs_llm_url": model.url, "graphs_llm_model": "small"}
        async with Deployment(dsn, tmp_path, **llm) as deployment:
            await deployment.start_graphs_worker()
            result = await result_of(deployment, "supermodel")
    names = {domain["name"] for domain in result["domains"]}
    assert names == {f'The "{domain["id"]}"' for domain in result["domains"]}
    assert {domain["descriptionSummary"] for domain in result["domains"]} == {"It is a part."}
    assert {each["domainName"] for each in result["fileAssignments"]} == names
    assert {each["parentDomain"] for each in result["functionAssignments"]} <= names
    assert {each["domainName"] for each in result["classAssignments"]} <= names
    domains = [node for node in result["graph"]["nodes"] if node["labels"] == ["Domain"]]
    assert {node["properties"]["name"] for node in domains} == names
    assert {node["properties"]["description"] for node in domains} == {"It is a part."}
    assert {each["from"] for each in result["relationships"]} <= names


async def test_two_runs_differ_in_their_times_and_in_nothing_else(deployment: Deployment) -> None:
    await deployment.start_graphs_worker()
    first = await result_of(deployment, "supermodel")
    again = await post(deployment.http, ARCHIVE, "again", operation="supermodel", Prefer="wait=60")
    second = again.json()["result"]
    for result in (first, second):
        for name in ("generatedAt", "metadata", "runId"):
            result.pop(name)
        result["stats"].pop("processingTimeMs")
    assert json.dumps(first) == json.dumps(second)
