"""The parts about HTTP: every route, by tag, and every error code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from http import HTTPStatus
from importlib.metadata import distribution
from typing import Any, Final
from unittest.mock import MagicMock

from coatcheck.domain.errors import CoatcheckError
from coatcheck.domain.tenants import Scope
from coatcheck.hosting import product_routes
from coatcheck.http.app import create_app
from coatcheck.http.context import ServerContext
from coatcheck.http.job_adapters import JobAdapters
from coatcheck.http.openapi import PATH_PARAMETERS
from coatcheck.http.problems import Refusal, status_of
from coatcheck.http.routing import EVERY_METHOD, Access, Parameter, Route
from coatcheck.installed import PRODUCTS_GROUP
from coatcheck.product import Products
from coatcheck.settings import Settings
from scripts.reference.parts import (
    code,
    described_names,
    load_everything,
    own_docstring,
    prose,
    table,
)

_KINDS: Final = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`"}


@cache
def declared_routes() -> Sequence[Route]:
    """All routes of a server with the products that come with Coatcheck.

    They are declared on a context that only their handlers use, and no handler is called here.
    """
    untouched = {part.name: MagicMock(name=part.name) for part in dataclasses.fields(ServerContext)}
    settings = Settings.from_environment(
        {"COATCHECK_DATABASE_URL": "postgresql://nowhere", "COATCHECK_KEY_PEPPER": "-" * 32}
    )
    points = distribution("coatcheck").entry_points.select(group=PRODUCTS_GROUP)
    products = Products.load([point.name for point in points])
    context = ServerContext(**untouched | {"settings": settings, "adapters": JobAdapters()})
    return create_app(context, product_routes(products)).routes


def _routes() -> str:
    tags = dict.fromkeys(route.tag for route in declared_routes())
    return "\n".join(_tag(tag) for tag in sorted(tags))


def _of_tag(tag: str, prefix: str = "/") -> Sequence[Route]:
    found = [each for each in declared_routes() if each.tag == tag and each.path.startswith(prefix)]
    return sorted(found, key=lambda route: (shown_path(route), *route.methods))


def _short_table(tag: str, prefix: str = "/") -> str:
    """The routes of a tag without what the page of all routes has besides."""
    return table(
        ["route", "access", "what it does"],
        (
            [code(_address(each)), access(each), prose(each.summary)]
            for each in _of_tag(tag, prefix)
        ),
    )


def _tag(tag: str) -> str:
    routes = _of_tag(tag)
    parameters = _parameters(routes)
    return f"## {tag}\n\n{_table(routes)}\n" + (f"{parameters}\n" if parameters else "")


def _table(routes: Iterable[Route]) -> str:
    return table(
        ["route", "what it does", "access", "parameters", "statuses"],
        (
            [
                code(_address(route)),
                prose(route.summary),
                access(route),
                ", ".join(code(each.name) for each in route.parameters if each.place != "path"),
                ", ".join(map(str, sorted({int(each.status) for each in route.responses}))),
            ]
            for route in routes
        ),
    )


def _address(route: Route) -> str:
    methods = "any method" if set(EVERY_METHOD) <= {*route.methods} else ", ".join(route.methods)
    return f"{methods} {shown_path(route)}"


def shown_path(route: Route) -> str:
    """Its path, as the OpenAPI document has it."""
    return route.path.replace(":path}", "}")


def access(route: Route) -> str:
    """Who may call a route."""
    if route.operators_only:
        return "operators"
    match route.access:
        case Access.OPEN:
            return "open"
        case Access.HANDLER:
            return "depends"
        case Scope() as scope:
            return code(scope)


def _parameters(routes: Sequence[Route]) -> str:
    declared = {
        (each.place, each.name, _described(each)): each
        for route in routes
        for each in route.parameters
        if each.name not in PATH_PARAMETERS or each.place != "path"
    }
    if not declared:
        return ""
    return table(
        ["parameter", "in", "meaning"],
        ([code(name), place, text] for place, name, text in sorted(declared)),
    )


def _described(parameter: Parameter) -> str:
    bounds = _bounds(parameter.schema)
    return prose(parameter.description) + (f" ({bounds})" if bounds else "")


def _bounds(schema: Any) -> str:
    if "enum" in schema:
        return ", ".join(map(code, schema["enum"]))
    words = [_KINDS.get(schema.get("type", ""), "")]
    if "maximum" in schema:
        words.append(f"{schema.get('minimum', 0)} to {schema['maximum']}")
    if "default" in schema:
        words.append(f"default {code(schema['default'])}")
    return ", ".join(word for word in words if word)


def _errors() -> str:
    meanings = described_names(Refusal)
    rows = {(*each.value, prose(meanings[each.name])) for each in Refusal}
    for kind in _kinds(CoatcheckError):
        status = status_of(kind)
        if status is not None and "code" in vars(kind):
            rows.add((status, kind.code, prose(own_docstring(kind))))
    rows.add((HTTPStatus.INTERNAL_SERVER_ERROR, CoatcheckError.code, _INTERNAL))
    return table(
        ["status", "code", "meaning"],
        ([str(int(status)), code(name), text] for status, name, text in sorted(rows)),
    )


def _kinds(kind: type[CoatcheckError]) -> Iterator[type[CoatcheckError]]:
    """All errors of the core and of the products."""
    load_everything()
    for below in kind.__subclasses__():
        yield below
        yield from _kinds(below)


_INTERNAL: Final = "An unexpected error. The server's log has it under the request's id."

ROUTE_PARTS = {"the routes": _routes}
PRODUCT_PARTS = {
    page: {f"routes of {tag}": partial(_short_table, tag, prefix)}
    for page, tag, prefix in (
        ("batches", "batches", "/"),
        ("console", "console", "/"),
        ("graphs", "graphs", "/"),
        ("http", "gateway", "/"),
        ("llm", "llm", "/jobs"),
        ("speech", "speech", "/"),
    )
}
"""The pages that begin with the routes of one tag, or with those below a path."""
ERROR_PARTS = {"the errors": _errors}
