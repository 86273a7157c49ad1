"""The routes of the batches surface, put together."""

from __future__ import annotations

from collections.abc import Mapping

from coatcheck.core.webhook_payloads import SubjectRenderer
from coatcheck.domain.webhooks import Tells
from coatcheck.http.context import Parts
from coatcheck.http.job_adapters import JobDesk
from coatcheck.http.routing import Operation
from coatcheck.products.batches import artifacts
from coatcheck.products.batches import dead_letter_routes as dead_letters
from coatcheck.products.batches import explain as explaining
from coatcheck.products.batches import export_routes as exports
from coatcheck.products.batches import read_routes as reading
from coatcheck.products.batches import run_routes as runs
from coatcheck.products.batches import submit_routes as submitting
from coatcheck.products.batches import task_routes as tasks
from coatcheck.products.batches import upload_routes as uploads
from coatcheck.products.batches import webhook_payloads as telling
from coatcheck.products.batches.context import Scene
from coatcheck.products.batches.job_adapter import BatchesDesk
from coatcheck.products.batches.responses import Answers
from coatcheck.products.batches.task_lists import Lists


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
