"""How a route is declared: once, for the router and for the OpenAPI document alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Answer:
    """One status a route may answer with. ``body`` is a msgspec type, or None for plain text."""

    status: HTTPStatus
    description: str
    body: type[msgspec.Struct] | None = None
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    """For a body that no msgspec type describes."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path: who answers, and with what."""

    method: Method
    path: str
    name: str
    summary: str
    handler: Handler
    answers: Sequence[Answer]
    tag: str
    description: str = ""

    def route(self) -> Route:
        return Route(self.path, self.handler, methods=[self.method], name=self.name)
