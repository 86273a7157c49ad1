"""Registers speech: texts spoken by a remote, and the voices that speak them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coatcheck.product import Product, ProductContext, WorkerContext

if TYPE_CHECKING:
    from coatcheck.core.remote.result_store import ResultStore
    from coatcheck.domain.remote_work import OperatorRemote
    from coatcheck.http.context import ServerContext
    from coatcheck.http.job_adapters import JobAdapter
    from coatcheck.http.routing import Route
    from coatcheck.maintenance.loop import Loop
    from coatcheck.maintenance.runner import MaintenanceContext
    from coatcheck.service import Service
    from coatcheck.settings import Settings


def _routes(context: ProductContext) -> Sequence[Route]:
    """Every route of the product."""
    from coatcheck.products.speech import submit_routes, voice_routes
    from coatcheck.products.speech.jobs import SpeechJobs

    server = context.server
    jobs = SpeechJobs(server)
    return [
        *voice_routes.routes(jobs),
        *submit_routes.routes(jobs),
        *jobs.list_routes(),
        *jobs.routes(),
        *submit_routes.generation_routes(jobs),
    ]


def _jobs(server: ServerContext) -> JobAdapter:
    from coatcheck.products.speech.jobs import SpeechJobs

    return SpeechJobs(server)


@asynccontextmanager
async def _call_services(_: WorkerContext) -> AsyncIterator[Sequence[Service]]:
    from coatcheck.products.speech.executor import speech_service

    yield [speech_service()]


def _maintenance(context: MaintenanceContext) -> Sequence[Loop]:
    from coatcheck.products.speech.maintenance import VoiceCleanup

    return [VoiceCleanup(context.db, context.blobs)]


def _result_stores() -> Mapping[str, ResultStore]:
    from coatcheck.products.speech.executor import CloneResultStore, SpeechResultStore
    from coatcheck.products.speech.model import SPEECH_ENDPOINTS, SpeechType

    return {
        SPEECH_ENDPOINTS[SpeechType.GENERATE]: SpeechResultStore(),
        SPEECH_ENDPOINTS[SpeechType.DESIGN_PREVIEW]: SpeechResultStore(),
        SPEECH_ENDPOINTS[SpeechType.CLONE]: CloneResultStore(),
    }


def _operator_remotes(settings: Settings) -> Mapping[str, OperatorRemote]:
    from coatcheck.remotes.definitions import check_operator_remote

    if settings.speech_target is None:
        return {}
    check_operator_remote("COATCHECK_SPEECH_REMOTE", settings.speech_target)
    return {"speech": settings.speech_target}


PRODUCT = Product(
    name="speech",
    services=("speech",),
    routes=_routes,
    jobs=_jobs,
    call_services=_call_services,
    maintenance=_maintenance,
    result_stores=_result_stores,
    operator_remotes=_operator_remotes,
)
