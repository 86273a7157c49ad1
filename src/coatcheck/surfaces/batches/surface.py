"""The routes of the batches surface, put together."""

from __future__ import annotations

from collections.abc import Mapping

from coatcheck.control.job_desks import JobDesk
from coatcheck.control.operations import Operation
from coatcheck.control.parts import Parts
from coatcheck.domain.webhooks import Tells
from coatcheck.engine.notices import SubjectRenderer
from coatcheck.surfaces.batches import (
    artifacts,
    dead_letters,
    explaining,
    exports,
    reading,
    runs,
    submitting,
    tasks,
    telling,
    uploads,
)
from coatcheck.surfaces.batches.answering import Answers
from coatcheck.surfaces.batches.desk import BatchesDesk
from coatcheck.surfaces.batches.lists import Lists
from coatcheck.surfaces.batches.scene import Scene


def operations(parts: Parts) -> list[Operation]:
    """Every route of the surface, on the control plane's parts."""
    scene = Scene(
        settings=parts.settings,
        engine=parts.engine,
        catalogue=parts.catalogue,
        gate=parts.gate,
        guard=parts.receivers,
        draining=parts.draining,
        large=parts.answers.large,
    )
    answers = Answers(parts.engine, parts.draining, parts.gate)
    taking = Lists(parts.engine, parts.settings.batch_small_tasks)
    return [
        *submitting.operations(scene, answers, taking),
        *reading.operations(scene, answers),
        *tasks.operations(scene, answers, taking),
        *explaining.operations(scene, parts.answers),
        *artifacts.operations(parts, scene),
        *runs.operations(scene, answers),
        *uploads.operations(scene),
        *exports.operations(scene),
        *dead_letters.operations(scene),
    ]


def desk(parts: Parts) -> JobDesk:
    """Who speaks for tasks where all jobs are looked after."""
    return BatchesDesk(parts.engine, parts.remote_calls)


def tellers(parts: Parts) -> Mapping[Tells, SubjectRenderer]:
    """What webhooks say of batches and their tasks."""
    return telling.renderers(parts.engine)
