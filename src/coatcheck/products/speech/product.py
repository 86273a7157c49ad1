"""Speech: texts spoken by a remote, and the voices that speak them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coatcheck.product import Product, ServerContext

if TYPE_CHECKING:
    from coatcheck.core.remote.result_store import Keeper
    from coatcheck.core.webhook_payloads import JobRenderer
    from coatcheck.domain.remote_work import OperatorRemote
    from coatcheck.http.context import Parts
    from coatcheck.http.job_adapters import JobDesk
    from coatcheck.http.routing import Operation
    from coatcheck.maintenance.loop import Loop
    from coatcheck.maintenance.runner import MaintenanceContext
    from coatcheck.service import Service
    from coatcheck.settings import Settings


def _routes(context: ServerContext) -> Sequence[Operation]:
    from coatcheck.products.speech import routes as surface

    return surface.operations(context.parts)


def _job_adapter(parts: Parts) -> JobDesk:
    from coatcheck.products.speech import routes as surface

    return surface.desk(parts)


def _job_payload(parts: Parts) -> JobRenderer:
    from coatcheck.products.speech import routes as surface

    return surface.teller(parts)


@asynccontextmanager
async def _call_services(_: Settings) -> AsyncIterator[Sequence[Service]]:
    from coatcheck.products.speech.executor import speech_service

    yield [speech_service()]


def _maintenance(context: MaintenanceContext) -> Sequence[Loop]:
    from coatcheck.products.speech.maintenance import VoiceKeeper

    return [VoiceKeeper(context.line, context.blobs)]


def _result_stores() -> Mapping[str, Keeper]:
    from coatcheck.products.speech.model import SPEECH_ENDPOINTS, SpeechType
    from coatcheck.products.speech.result_stores import CloneKeeper, SpeechKeeper

    return {
        SPEECH_ENDPOINTS[SpeechType.GENERATE]: SpeechKeeper(),
        SPEECH_ENDPOINTS[SpeechType.DESIGN_PREVIEW]: SpeechKeeper(),
        SPEECH_ENDPOINTS[SpeechType.CLONE]: CloneKeeper(),
    }


def _operator_remotes(settings: Settings) -> Mapping[str, OperatorRemote]:
    from coatcheck.core.remote.operator_remotes import check_operator_remote

    if settings.speech_target is None:
        return {}
    check_operator_remote("COATCHECK_SPEECH_REMOTE", settings.speech_target)
    return {"speech": settings.speech_target}


PRODUCT = Product(
    name="speech",
    services=("speech",),
    routes=_routes,
    job_adapter=_job_adapter,
    job_payload=_job_payload,
    call_services=_call_services,
    maintenance=_maintenance,
    result_stores=_result_stores,
    operator_remotes=_operator_remotes,
)
