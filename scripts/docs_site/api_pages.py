"""Generates the reference of every route from the OpenAPI document: one page per tag."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scripts.docs_site.repository import REPOSITORY

_METHODS: Final = ("get", "post", "put", "patch", "delete")
_ORDER: Final = ("gateway", "graphs", "batches", "llm", "speech", "console")
_USUAL_TYPES: Final = ("application/json", "application/problem+json")

Json = Mapping[str, Any]


def document() -> Json:
    """The document of this tree's server."""
    printed = subprocess.run(
        [sys.executable, REPOSITORY / "scripts" / "openapi_document"],
        check=True,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(REPOSITORY / "src"), "PYTHONHASHSEED": "0"},
    ).stdout
    return json.loads(printed)  # type: ignore[no-any-return]


def write(source: Path) -> list[str]:
    """Write the pages and the document below ``source``; returns the tags."""
    described = document()
    by_tag: dict[str, list[tuple[str, str, Json]]] = defaultdict(list)
    for path, methods in described["paths"].items():
        for method in _METHODS:
            if method in methods:
                by_tag[methods[method]["tags"][0]].append((method.upper(), path, methods[method]))
    folder = source / "reference" / "api"
    folder.mkdir(parents=True)
    ranks = {tag: rank for rank, tag in enumerate(_ORDER)}
    tags = sorted(by_tag, key=lambda tag: (ranks.get(tag, len(ranks)), tag))
    for tag in tags:
        (folder / f"{_slug(tag)}.md").write_text(_page(tag, by_tag[tag], described))
    names = "\n".join(_slug(tag) for tag in tags)
    (folder / "index.md").write_text(
        "# Every route\n\nGenerated from the OpenAPI document, which a server has at "
        "`/openapi.json`, and to try out at `/docs`. [HTTP](../http.md) describes what all routes "
        "have in common.\n\n"
        f"```{{toctree}}\n:maxdepth: 2\n\n{names}\n```\n"
    )
    return tags


def _page(tag: str, routes: list[tuple[str, str, Json]], described: Json) -> str:
    """The routes of a tag, then the bodies that they take and answer, each once."""
    lines = [f"# Routes: {tag}", ""]
    bodies: dict[str, None] = {}
    for method, path, operation in routes:
        lines += _operation(method, path, operation)
        for schema in _schemas(operation):
            bodies |= dict.fromkeys(_named(schema, described))
    if bodies:
        lines += ["## Bodies", ""]
    for name in sorted(bodies):
        lines += _body(name, described)
    return "\n".join(lines) + "\n"


def _operation(method: str, path: str, operation: Json) -> Iterator[str]:
    yield f"## `{method} {path}`\n"
    yield f"{operation['summary']}\n"
    if operation.get("description"):
        yield f"{operation['description']}\n"
    if not operation["security"]:
        yield "Needs no credential.\n"
    elif {} in operation["security"]:
        yield "Whether it needs a credential depends on the request.\n"
    if operation.get("parameters"):
        yield "| parameter | in | type | |\n| --- | --- | --- | --- |"
        for each in operation["parameters"]:
            text = _cell(each.get("description", ""))
            required = " (required)" if each.get("required") and each["in"] != "path" else ""
            kind = _type_of(each["schema"])
            yield f"| `{each['name']}`{required} | {each['in']} | {kind} | {text} |"
        yield ""
    body = operation.get("requestBody")
    if body:
        kinds = "; ".join(_kinds(body["content"]))
        yield f"Body: {kinds}. {body['description']}\n"
    yield "| answer | | body |\n| --- | --- | --- |"
    for status, answer in operation["responses"].items():
        kinds = "; ".join(_kinds(answer.get("content", {})))
        yield f"| {status} | {_cell(answer['description'])} | {kinds} |"
    yield ""


def _kinds(content: Json) -> Iterator[str]:
    for media_type, each in content.items():
        kind = _type_of(each["schema"])
        yield kind if media_type in _USUAL_TYPES else f"{kind} as `{media_type}`"


def _schemas(operation: Json) -> Iterator[Json]:
    contents = [operation.get("requestBody", {}), *operation["responses"].values()]
    for each in contents:
        for content in each.get("content", {}).values():
            yield content["schema"]


def _named(schema: Any, described: Json) -> Iterator[str]:
    """The names of the bodies in a schema."""
    waiting, seen = [schema], set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            name = _name(each)
            if name and name not in seen:
                seen.add(name)
                yield name
                waiting.append(described["components"]["schemas"][name])
            waiting += each.values()


def _body(name: str, described: Json) -> Iterator[str]:
    schema = described["components"]["schemas"][name]
    yield f"### {_title(name)}\n"
    if schema.get("description"):
        yield f"{_cell(schema['description'])}\n"
    properties = schema.get("properties", {})
    if not properties:
        yield f"{_type_of(schema)}\n"
        return
    yield "| field | type | |\n| --- | --- | --- |"
    required = schema.get("required", ())
    for field, its in properties.items():
        text = _cell(its.get("description", ""))
        kind = _type_of(its) + ("" if field in required else " (optional)")
        yield f"| `{field}` | {kind} | {text} |"
    yield ""


def _name(schema: Json) -> str | None:
    reference = schema.get("$ref")
    return reference.rpartition("/")[2] if isinstance(reference, str) else None


def _title(name: str) -> str:
    """In the document, types of one name are distinguished by their modules."""
    return name.rpartition(".")[2]


def _type_of(schema: Json) -> str:
    name = _name(schema)
    if name:
        return _title(name)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(_type_of(each) for each in schema[word]))
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_type_of(schema.get('items', {}))}"
    if isinstance(kind, list):
        return " or ".join(kind)
    if schema.get("format"):
        return f"{kind} ({schema['format']})"
    return str(kind)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _slug(tag: str) -> str:
    return tag.lower().replace(" ", "-")
