"""When a caller is asked to come back: after what the jobs of the kind really take."""

from __future__ import annotations

import pytest

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_it_is_shorter_once_jobs_of_the_kind_were_seen_to_be_quick(
    shared: Deployment,
) -> None:
    first = await shared.http.post(paths.submit("/echo"), json={})
    await end_of(shared.http, first.json())
    later = await shared.http.post(paths.submit("/echo"), json={})
    assert (first.headers["retry-after"], later.headers["retry-after"]) == ("2", "1")
