"""The surfaces that one ``coatcheck serve`` serves: all of them, on one port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coatcheck.control.app import Surface
from coatcheck.control.job_desks import JobDesk
from coatcheck.control.operations import Operation
from coatcheck.control.parts import Parts
from coatcheck.control.routes import usage_reports, webhook_messages
from coatcheck.domain.endpoint_names import GRAPHS_SERVICE, LLM_SERVICE, SPEECH_SERVICE
from coatcheck.engine.notices import Notices
from coatcheck.surfaces.batches import surface as batches
from coatcheck.surfaces.console import surface as console
from coatcheck.surfaces.gateway import surface as gateway
from coatcheck.surfaces.graphs import surface as graphs
from coatcheck.surfaces.llm import surface as llm
from coatcheck.surfaces.llm.problem_formats import UNROUTED_FORMATS
from coatcheck.surfaces.speech import surface as speech


def _webhook_messages(parts: Parts) -> list[Operation]:
    """Webhooks that are fetched; what they say is said by the surfaces."""
    render = notices(parts).body
    return webhook_messages.operations(parts.engine.webhooks, render, parts.draining, parts.gate)


def _console(parts: Parts) -> list[Operation]:
    """All jobs; each surface speaks for its own."""
    return console.operations(parts, desks(parts))


SURFACES: Final[Sequence[Surface]] = (
    Surface(gateway.operations, request_headers=gateway.REQUEST_HEADERS),
    Surface(graphs.operations, response_headers=graphs.RESPONSE_HEADERS),
    Surface(batches.operations),
    Surface(
        llm.operations,
        unrouted_formats=UNROUTED_FORMATS,
        request_headers=llm.REQUEST_HEADERS,
    ),
    Surface(speech.operations),
    Surface(_webhook_messages),
    Surface(_console),
)


def desks(parts: Parts) -> Sequence[JobDesk]:
    """Who speaks for the jobs of each surface."""
    return (
        gateway.desk(parts),
        graphs.desk(parts),
        batches.desk(parts),
        llm.desk(parts),
        speech.desk(parts),
    )


def notices(parts: Parts) -> Notices:
    """What webhooks say, in the words of each surface."""
    return Notices(
        parts.engine,
        otherwise=gateway.teller(parts),
        services={
            GRAPHS_SERVICE: graphs.teller(parts),
            LLM_SERVICE: llm.teller(parts),
            SPEECH_SERVICE: speech.teller(parts),
        },
        kinds={**batches.tellers(parts), **usage_reports.renderers(parts.engine)},
    )
