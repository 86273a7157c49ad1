"""Many jobs at once, by COPY: what was written is what was meant."""

from __future__ import annotations

import pytest

from coatcheck import Engine, Submission
from coatcheck.domain.errors import InvalidSubmission

ENDPOINT = "docs.post__analyze"

MIXED = [
    Submission(ENDPOINT, {"n": 0}),
    Submission(ENDPOINT, {"n": 1}, lane="bulk", queue_key="a"),
    Submission(ENDPOINT, b'{"n":2}', org="acme", retries=7),
    Submission("other.post__run", {"n": "drei, größer"}, request_id="r-é-3"),
    Submission(ENDPOINT, {"n": 4}),
]


async def test_jobs_of_many_kinds_keep_what_they_were_given(engine: Engine) -> None:
    tickets = await engine.submit_many(MIXED)
    assert len(tickets) == len(MIXED)
    for submission, ticket in zip(MIXED, tickets, strict=True):
        view = await engine.get(ticket.id, org=submission.org)
        assert (view.endpoint, view.queue_key) == (submission.endpoint, submission.queue_key)
        assert view.lane == (submission.lane or "standard")
        assert view.failures_max == (3 if submission.retries is None else submission.retries)
        assert view.request_id == submission.request_id


async def test_the_tickets_are_a_sequence_in_the_order_given(engine: Engine) -> None:
    tickets = await engine.submit_many([Submission(ENDPOINT, {"n": n}) for n in range(700)])
    ids = [ticket.id for ticket in tickets]
    assert ids == sorted(ids)
    assert len(set(ids)) == 700
    assert tickets[-1].id == ids[-1]
    assert [ticket.id for ticket in tickets[10:13]] == ids[10:13]
    assert all(ticket.created for ticket in tickets)
    with pytest.raises(IndexError):
        tickets[700]


async def test_a_payload_that_is_no_json_late_in_a_bulk_leaves_nothing(engine: Engine) -> None:
    good = [Submission(ENDPOINT, {"n": n}) for n in range(2_000)]
    with pytest.raises(InvalidSubmission, match=r"^payload: "):
        await engine.submit_many([*good, Submission(ENDPOINT, object())])
    assert await engine.list() == []
    assert len(await engine.submit_many(good)) == 2_000


async def test_an_unhashable_name_is_refused_as_any_other(engine: Engine) -> None:
    with pytest.raises(InvalidSubmission, match=r"^org: "):
        await engine.submit_many([Submission(ENDPOINT, org=["acme"])])  # type: ignore[arg-type]
