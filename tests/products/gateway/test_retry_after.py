"""When a caller is asked to come back: after what the jobs of the kind really take."""

from __future__ import annotations

import pytest

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, hand_in
from tests.products.gateway.docs_service import gates

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_it_is_shorter_once_jobs_of_the_kind_were_seen_to_be_quick(
    shared: Deployment,
) -> None:
    first = await shared.http.post(paths.submit("/echo"), json={})
    await end_of(shared.http, first.json())
    later = await shared.http.post(paths.submit("/echo"), json={})
    assert (first.headers["retry-after"], later.headers["retry-after"]) == ("2", "1")


async def test_every_answer_about_a_job_that_goes_on_has_one(shared: Deployment, gate: str) -> None:
    ticket = await hand_in(shared.http, "/held", {"gate": gate})
    answer = await shared.http.get(ticket["poll_url"])
    assert int(answer.headers["retry-after"]) >= 1
    gates.opened[gate].set()
    await end_of(shared.http, ticket)
    assert "retry-after" not in (await shared.http.get(ticket["poll_url"])).headers
