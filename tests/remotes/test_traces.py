"""Work that is spawned as a part of a trace says so to the service, where that is asked by HTTP."""

from __future__ import annotations

import pytest

from coatcheck.remotes import Remote, SpawnRequest
from coatcheck.telemetry import tracing
from tests.remotes.fake_modal import FakeModal
from tests.remotes.fake_service import FakeService

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_the_service_gets_the_trace_and_no_other_call_does(
    service: FakeService, remote: Remote
) -> None:
    if isinstance(service, FakeModal):
        pytest.skip("Modal's own package makes its calls")
    with tracing.continuing(TRACEPARENT):
        remote_id = await remote.spawn(SpawnRequest("a1b2c3d4" * 8, b'{"text": "Hello."}'))
    (spawned,) = service.calls
    assert spawned.request.header("traceparent") == TRACEPARENT
    await remote.status([remote_id])
    assert service.calls[-1].request.header("traceparent") is None
