"""Having a job done again: as a new one, of what the old one was handed in with."""

from __future__ import annotations

import asyncio

import pytest

from tests.deployment import Deployment
from tests.products.console.callers import Caller
from tests.products.console.chores_service import doors, mended
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_failed_job_is_done_again_as_a_new_one_with_the_same_input(user: Caller) -> None:
    old = await user.ended("sweep", room="attic", key="the first")
    assert (old["state"], old["input_kept"]) == ("failed", True)
    mended.add("attic")
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    answer = await user.post(old["urls"]["retry"], headers=headers)
    assert answer.status_code == 202, answer.text
    new = answer.json()
    assert (old["trace_id"], new["trace_id"]) == (None, trace), "it is part of the retry's trace"
    assert answer.headers["location"] == new["urls"]["self"]
    assert new["id"] != old["id"]
    assert (new["retry_of"], new["idempotency_key"]) == (old["id"], None)
    assert (new["failures_max"], new["lane"]) == (old["failures_max"], old["lane"])
    done = await user.wait_for(new["id"])
    assert (done["state"], done["result"]) == ("completed", {"swept": "attic"})
    assert (done["owner"], done["input_kept"]) == (old["owner"], False)
    again = await user.get(f"jobs/{old['id']}")
    assert (again["state"], again["retried_as"]) == ("failed", new["id"])


async def test_one_key_is_one_retry_under_any_race_and_is_known_for_the_job_it_was_said_of(
    user: Caller,
) -> None:
    first = await user.ended("sweep", room="cellar")
    other = await user.ended("sweep", room="larder")
    headers = {"Idempotency-Key": "once"}
    retry = f"jobs/{first['id']}/retry"
    answers = await asyncio.gather(*(user.post(retry, headers=headers) for _ in range(8)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    replayed = [answer.headers.get("idempotent-replayed") for answer in answers]
    assert sorted(replayed, key=str) == [None, *["true"] * 7]
    new = answers[0].json()
    assert len(await user.listed(q="once")) == 1, "it is found by its key"
    shown = (await user.get(f"jobs/{new['id']}"), await user.get(new["urls"]["surface"]))
    assert [job["idempotency_key"] for job in shown] == [None, None], (
        "as it is stored, it says nothing"
    )
    mistaken = await user.post(f"jobs/{other['id']}/retry", headers=headers)
    assert mistaken.json()["id"] == new["id"]
    assert mistaken.headers["idempotency-mismatch"] == "true"
    strict = headers | {"Prefer": "handling=strict"}
    refused = await user.post(f"jobs/{other['id']}/retry", headers=strict)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_mismatch")


async def test_what_goes_on_what_completed_and_what_keeps_no_input_is_not_retried(
    user: Caller, org: str
) -> None:
    running = await user.hand_in("wait", door=org)
    await doors.entered[org].wait()
    completed = await user.ended("say", words="done")
    forgotten = await user.ended("forget", secret="hunter2")
    assert (forgotten["input_kept"], forgotten["urls"]["retry"]) == (False, None)
    for job_id, code in (
        (running, "job_not_ended"),
        (completed["id"], "input_not_kept"),
        (forgotten["id"], "input_not_kept"),
    ):
        answer = await user.post(f"jobs/{job_id}/retry")
        assert (answer.status_code, answer.json()["code"]) == (409, code)
    for job_id in (completed["id"], forgotten["id"]):
        gone = await user.ask("GET", f"jobs/{job_id}/input")
        assert (gone.status_code, gone.json()["code"]) == (409, "input_not_kept")
    assert await user.get(f"jobs/{running}/input") == {"door": org}
    doors.opened[org].set()
    await user.wait_for(running)


async def test_a_cancelled_job_is_retried_with_what_was_to_be_told_of_it(
    user: Caller, org: str
) -> None:
    told = {"X-Webhook-Url": "http://127.0.0.1:9/told"}
    headers = {"Prefer": "respond-async", **told}
    answer = await user.post("services/chores/async/idle", {}, headers=headers)
    assert answer.status_code == 202, answer.text
    old = answer.json()["job_id"]
    cancelled = await user.post(f"jobs/{old}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    again = await user.post(f"jobs/{old}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "job_already_ended")
    new = (await user.post(f"jobs/{old}/retry")).json()
    assert (new["state"], new["lane"]) == ("queued", "bulk")
    rows = await user.deployment.context.tenants.fetch(
        """
        SELECT j.webhook, w.tells, t.url
        FROM jobs AS j
        JOIN job_webhooks AS w ON w.org_id = j.org_id AND w.job_id = j.id
        JOIN webhook_targets AS t ON t.org_id = w.org_id AND t.id = w.target_id
        WHERE j.org_id = $1 AND j.retry_of IS NOT NULL
        """,
        org,
    )
    assert [tuple(row) for row in rows] == [(1, 1, told["X-Webhook-Url"])]


async def test_many_are_retried_at_once_and_one_that_cannot_keeps_no_other_from_it(
    user: Caller,
) -> None:
    failed = [(await user.ended("sweep", room=f"room {n}"))["id"] for n in range(2)]
    forgotten = (await user.ended("forget", secret="x"))["id"]
    order = {"action": "retry", "ids": [*failed, forgotten, "nonsense"]}
    answer = await user.post("jobs/bulk", order)
    assert answer.status_code == 200, answer.text
    items = answer.json()["items"]
    assert [item["id"] for item in items] == order["ids"]
    assert [item["ok"] for item in items] == [True, True, False, False]
    assert [item["code"] for item in items[2:]] == ["input_not_kept", "job_not_found"]
    assert all(item["new_id"] for item in items[:2])


async def test_an_order_by_filter_goes_on_where_the_one_before_stopped(user: Caller) -> None:
    failed = {
        (await user.ended("sweep", room=f"room {n}", code="out_of_soap"))["id"] for n in range(3)
    }
    await user.ended("sweep", room="another", code="no_bucket")
    mended.update(f"room {n}" for n in range(3))
    order = {"action": "retry", "filter": {"error_code": "out_of_soap"}, "limit": 2}
    seen = []
    more = True
    while more:
        answer = (await user.post("jobs/bulk", order)).json()
        assert all(item["ok"] for item in answer["items"])
        seen += [item["id"] for item in answer["items"]]
        more = answer["more"]
    assert len(seen) == len(failed)
    assert set(seen) == failed
    mended.difference_update(f"room {n}" for n in range(3))


async def test_orders_by_filter_that_come_at_once_retry_a_job_once(user: Caller) -> None:
    waiting = await user.hand_in("idle")
    await user.post(f"jobs/{waiting}/cancel")
    order = {"action": "retry", "filter": {"state": "cancelled"}}
    answers = await asyncio.gather(*(user.post("jobs/bulk", order) for _ in range(8)))
    items = [item for each in answers for item in each.json()["items"]]
    assert {(item["id"], item["ok"]) for item in items} == {(waiting, True)}
    assert set(await user.listed()) == {waiting, *(item["new_id"] for item in items)}
    assert len(await user.listed()) == 2


async def test_each_job_that_is_retried_counts_for_what_may_wait(shared: Deployment) -> None:
    await shared.create_org("narrow", backlog_max=3)
    user = Caller(shared, "narrow", await shared.create_key("narrow", "bob"))
    waiting = [await user.hand_in("idle") for _ in range(3)]
    for job_id in waiting:
        await user.post(f"jobs/{job_id}/cancel")
    items = []

    async def retried() -> bool:
        answer = await user.post("jobs/bulk", {"action": "retry", "ids": waiting})
        items.extend(answer.json()["items"])
        return any(item["ok"] for item in items)

    await eventually_async(retried, "what was cancelled no longer counts")
    await retried()
    assert {item["code"] for item in items} == {None, "queue_full"}
    assert 3 <= sum(item["ok"] for item in items) < 6


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
async def test_an_order_about_a_time_that_utc_does_not_have_is_refused(
    user: Caller, moment: str
) -> None:
    order = {"action": "cancel", "filter": {"created_after": moment}}
    answer = await user.post("jobs/bulk", order)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")


async def test_an_order_by_filter_turns_over_pages_on_which_nothing_fits(
    user: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = (await user.ended("sweep", room="cellar", code="out_of_soap"))["id"]
    for n in range(7):
        await user.ended("sweep", room=f"attic {n}", code="no_bucket")
    monkeypatch.setattr("coatcheck.core.org_jobs.FIRST_STEP_ROWS", 1)
    monkeypatch.setattr("coatcheck.core.org_jobs.WALKED_ROWS_MAX", 3)
    order = {"action": "retry", "filter": {"error_code": "out_of_soap"}, "limit": 1}
    answer = (await user.post("jobs/bulk", order)).json()
    assert [item["id"] for item in answer["items"]] == [wanted]


async def test_all_that_waits_is_cancelled_by_one_order(user: Caller) -> None:
    waiting = {await user.hand_in("idle") for _ in range(3)}
    done = await user.ended("say", words="done")
    order = {"action": "cancel", "filter": {"service": "chores"}}
    answer = (await user.post("jobs/bulk", order)).json()
    assert {item["id"] for item in answer["items"]} == waiting
    assert set(await user.listed(state="cancelled")) == waiting
    assert (await user.get(f"jobs/{done['id']}"))["state"] == "completed"
    neither = await user.post("jobs/bulk", {"action": "cancel"})
    assert neither.status_code == 422
