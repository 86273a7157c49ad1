"""The routes of the console, put together."""

from __future__ import annotations

from collections.abc import Sequence

from coatcheck.control.job_desks import JobDesk
from coatcheck.control.operations import Operation
from coatcheck.control.parts import Parts
from coatcheck.surfaces.console import artifacts, listing, operators, reading, steering
from coatcheck.surfaces.console.desks import JobDesks
from coatcheck.surfaces.console.scene import Scene
from coatcheck.surfaces.console.showing import ConsoleVoice


def operations(parts: Parts, desks: Sequence[JobDesk]) -> list[Operation]:
    """Every route of the console, on the control plane's parts; ``desks`` speak for surfaces."""
    scene = scene_of(parts, desks)
    return [
        *listing.operations(scene),
        *reading.operations(scene),
        *steering.operations(scene),
        *artifacts.operations(parts, scene),
        *operators.operations(parts.tenants),
    ]


def scene_of(parts: Parts, desks: Sequence[JobDesk]) -> Scene:
    """What the routes work with."""
    all_desks = JobDesks(desks)
    return Scene(
        engine=parts.engine,
        gate=parts.gate,
        answers=parts.answers,
        desks=all_desks,
        voice=ConsoleVoice(parts.engine, all_desks),
    )
