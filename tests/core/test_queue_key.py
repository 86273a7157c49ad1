"""The queue key and its old name, ``flow``, which is removed with 0.1.0."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coatcheck import ConcurrencyLimit, Engine, Submission
from coatcheck.domain.errors import InvalidSubmission
from coatcheck.domain.job import JobView
from tests.db.rows import ENDPOINT

NAMES: list[dict[str, Any]] = [
    {"queue_key": "import-7"},
    {"flow": "import-7"},
    {"queue_key": "import-7", "flow": "import-7"},
]


@pytest.mark.parametrize("named", NAMES, ids=" and ".join)
async def test_a_job_has_the_queue_key_by_either_name(
    named: dict[str, str], engine: Engine
) -> None:
    ticket = await engine.submit(ENDPOINT, **named)
    many = await engine.submit_many([Submission(ENDPOINT, **named), Submission(ENDPOINT)])
    views = [await engine.get(each.id) for each in (ticket, *many)]
    assert [view.queue_key for view in views] == ["import-7", "import-7", ""]
    assert [view.flow for view in views] == ["import-7", "import-7", ""]


async def test_the_old_name_makes_no_kind_of_job_of_another_key(engine: Engine) -> None:
    """The engine remembers kinds of jobs: a key by one name is never that of the other."""
    given: list[dict[str, str]] = [{"flow": "a"}, {"queue_key": "b"}, {}, {"flow": "b"}]
    tickets = await engine.submit_many([Submission(ENDPOINT, **each) for each in given * 2])
    views = [await engine.get(ticket.id) for ticket in tickets]
    assert [view.queue_key for view in views] == ["a", "b", "", "b"] * 2


async def test_two_different_queue_keys_are_refused(engine: Engine) -> None:
    with pytest.raises(InvalidSubmission, match=r"^queue_key: differs from flow"):
        await engine.submit_many([Submission(ENDPOINT, queue_key="a", flow="b")])
    with pytest.raises(InvalidSubmission, match=r"^queue_key_prefix: differs from flow_prefix"):
        await engine.page(queue_key_prefix="a", flow_prefix="b")


@pytest.mark.parametrize("name", ["queue_key_prefix", "flow_prefix"])
async def test_a_page_is_narrowed_by_either_name(name: str, engine: Engine) -> None:
    wanted = await engine.submit(ENDPOINT, queue_key="import-7")
    await engine.submit(ENDPOINT, queue_key="export-7")
    narrowed: dict[str, Any] = {name: "import-"}
    assert [view.id for view in (await engine.page(**narrowed)).items] == [wanted.id]


@pytest.mark.parametrize("scope", ["queue_key", "flow"])
@pytest.mark.parametrize("cleared_as", ["queue_key", "flow"])
async def test_a_limit_on_a_queue_key_has_either_scope(
    scope: str, cleared_as: str, engine: Engine
) -> None:
    limit = ConcurrencyLimit("default", scope, "import-7", 0)
    await engine.set_limit(limit)
    assert await engine.limits() == [limit] == [ConcurrencyLimit("default", "flow", "import-7", 0)]
    paused = await engine.submit(ENDPOINT, queue_key="import-7")
    assert (await blockers(engine, await engine.get(paused.id)))[0] == "paused"
    assert await engine.clear_limit("default", cleared_as, "import-7")
    assert await engine.limits() == []


async def test_no_other_scope_of_a_limit_is_known(engine: Engine) -> None:
    with pytest.raises(InvalidSubmission, match=r"^scope: must be endpoint, org or queue_key$"):
        await engine.set_limit(ConcurrencyLimit("default", "queue", "import-7", 0))


async def test_usage_and_the_overview_have_both_names(engine: Engine) -> None:
    await engine.submit(ENDPOINT, queue_key="import-7")
    overview = await engine.overviews.read("default", 5)
    (queue,) = overview.queues
    assert (queue.queue_key, queue.flow) == ("import-7", "import-7")
    assert overview.flows == overview.queues

    ended = await engine.submit(ENDPOINT, queue_key="export-7")
    await engine.cancel(ended.id)
    today, day = datetime.now(UTC).date(), timedelta(days=1)
    (row,) = await engine.usage("default", today - day, today + day)
    assert (row.queue_key, row.flow, row.cancelled) == ("export-7", "export-7", 1)


async def blockers(engine: Engine, view: JobView) -> list[str]:
    return [blocker.kind for blocker in (await engine.explainer.explain(view)).blockers]
