"""The routes of the console, put together."""

from __future__ import annotations

from coatcheck.http.routing import Operation
from coatcheck.product import ServerContext
from coatcheck.products.console import action_routes as steering
from coatcheck.products.console import artifacts
from coatcheck.products.console import list_routes as listing
from coatcheck.products.console import operator_routes as operators
from coatcheck.products.console import read_routes as reading
from coatcheck.products.console.adapters import JobDesks
from coatcheck.products.console.context import Scene
from coatcheck.products.console.presenter import ConsoleVoice


def operations(context: ServerContext) -> list[Operation]:
    """Every route of the console. The products that are on show their jobs."""
    parts = context.parts
    scene = scene_of(context)
    return [
        *listing.operations(scene),
        *reading.operations(scene),
        *steering.operations(scene),
        *artifacts.operations(parts, scene),
        *operators.operations(parts.tenants),
    ]


def scene_of(context: ServerContext) -> Scene:
    """What the routes work with."""
    parts = context.parts
    all_desks = JobDesks(parts, context.products)
    return Scene(
        engine=parts.engine,
        gate=parts.gate,
        answers=parts.answers,
        desks=all_desks,
        voice=ConsoleVoice(parts.engine, all_desks),
    )
