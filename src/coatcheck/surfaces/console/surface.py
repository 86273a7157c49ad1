"""The routes of the console, put together."""

from __future__ import annotations

from coatcheck.control.operations import Operation
from coatcheck.product import ServerContext
from coatcheck.surfaces.console import artifacts, listing, operators, reading, steering
from coatcheck.surfaces.console.desks import JobDesks
from coatcheck.surfaces.console.scene import Scene
from coatcheck.surfaces.console.showing import ConsoleVoice


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
