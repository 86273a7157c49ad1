from __future__ import annotations

import io
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator

import pytest

from coatcheck.egress import Guard
from coatcheck.remotes import Remote, Remotes
from coatcheck.settings.egress_allow import parse_allow
from coatcheck.telemetry.logs import configure_logging
from tests.remotes.fake_fal import FakeFal
from tests.remotes.fake_http import FakeHttp
from tests.remotes.fake_modal import FakeModal
from tests.remotes.fake_replicate import FakeReplicate
from tests.remotes.fake_runpod import FakeRunpod
from tests.remotes.fake_service import FakeService

TLS = ssl.create_default_context()  # takes its time, so once


@pytest.fixture(params=[FakeHttp, FakeReplicate, FakeRunpod, FakeFal, FakeModal])
async def service(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FakeService]:
    """Each service in turn, as its fake."""
    kind: type[FakeService] = request.param
    async with kind.running() as fake:
        if isinstance(fake, FakeModal):
            monkeypatch.setitem(sys.modules, "modal", fake.module)
            monkeypatch.setitem(sys.modules, "modal.exception", fake.module.exception)
        yield fake


@pytest.fixture
async def remotes() -> AsyncIterator[Remotes]:
    """What may call loopback."""
    async with Remotes(Guard(parse_allow("127.0.0.1")), tls=TLS) as opened:
        yield opened


@pytest.fixture
def remote(service: FakeService, remotes: Remotes) -> Remote:
    return service.opened(remotes)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that is logged, as a process of Coatcheck's would at its most talkative."""
    loggers = [logging.getLogger(), logging.getLogger("httpx2"), logging.getLogger("httpcore2")]
    levels = [logger.level for logger in loggers]
    handlers = loggers[0].handlers[:]
    written = io.StringIO()
    configure_logging("debug", "json", written)
    yield written
    loggers[0].handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    logging.captureWarnings(capture=False)


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port that is taken, and on which nobody listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
