"""What every product promises about its jobs, asked of each over HTTP.

The promises are those of ``docs/reference/http.md`` that hold for all products. A driver
(``drivers.py``) says what a product calls things, and which promise it does not make, with the
reason. Every answer is compared with the OpenAPI document (``document.py``).
"""

from __future__ import annotations

import asyncio
import re
import secrets
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import httpx2
import pytest
from standardwebhooks import Webhook

from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.tenants import ALL_SCOPES, USER_SCOPES, RateLimit, Scope
from tests.contract.job_resource.caller import Caller
from tests.contract.job_resource.drivers import DRIVERS, WORDS, Driver, Shared
from tests.contract.job_resource.served import Served
from tests.contract.test_tenant_matrix import essence
from tests.server_sent import Sent, sent_by
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

RIVALS = 6
GUARD_SECONDS = 45.0
"""Only a server that holds an answer to the end of its time, 60 s, reaches it."""
LINK = re.compile(r"<([^>]+)>")


def products_with(shared: Shared) -> pytest.MarkDecorator:
    """For a test of the products that promise this."""
    return pytest.mark.parametrize(
        "driver", [each for each in DRIVERS if each.has(shared)], ids=str
    )


def problem(answer: httpx2.Response, status: int, code: str) -> None:
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    ), answer.text
    body = answer.json()
    assert (body["status"], body["code"], body["message"]) == (status, code, body["detail"])


def keyed(key: str, **more: str) -> dict[str, str]:
    return {"Idempotency-Key": key} | {name.replace("_", "-"): more[name] for name in more}


async def ended(driver: Driver, caller: Caller, work: Any = "complete") -> str:
    """The id of a job that has ended so."""
    job_id = await driver.accepted(caller, "one", work)
    async with caller.served.working(driver.product, driver.services):
        job = await driver.job(caller, job_id, wait=60)
    expected = driver.words.completed if work == "complete" else driver.words.failed
    assert job[driver.state] == expected, job
    return job_id


async def cancelled(driver: Driver, caller: Caller, job_id: str) -> Any:
    """A job that waits, cancelled."""
    answer = await caller.post(driver.cancel(caller, job_id))
    at_once = driver.has(Shared.CANCELLED_AT_ONCE)
    assert answer.status_code == (200 if at_once else 202), answer.text
    job = answer.json()
    assert job["terminal"] is at_once
    if not at_once:
        job = await driver.job(caller, job_id, wait=60)
    assert (job[driver.state], job["terminal"]) == (driver.words.cancelled, True)
    return job


async def events_of(answer: httpx2.Response) -> list[Sent]:
    return [each async for each in sent_by(answer)]


# Submitting


async def test_a_submission_is_accepted_with_urls_that_all_work(
    driver: Driver, caller: Caller
) -> None:
    answer = await driver.submit(caller)
    assert answer.status_code == 202, answer.text
    job_id, body = driver.id_of(caller, answer), answer.json()
    assert re.fullmatch("[0-7][0-9A-HJKMNP-TV-Z]{25}", job_id)
    assert body[driver.state] == (driver.word_in_ticket or driver.words.waiting)
    assert body["terminal"] is False
    assert answer.headers["location"] == driver.status(caller, job_id)
    assert int(answer.headers["retry-after"]) >= 1
    assert "idempotent-replayed" not in answer.headers
    named = set(urls_of(body).values()) | set(LINK.findall(answer.headers["link"]))
    assert {*driver.reads(caller, job_id)[:2], driver.cancel(caller, job_id)} <= named
    for path in sorted(named):
        if path.startswith("/") and caller.served.document.is_read(path):
            async with caller.follow(path) as read:
                assert read.status_code in (200, 202), path
    await cancelled(driver, caller, job_id)


def urls_of(body: dict[str, Any]) -> dict[str, str]:
    """The URLs that the answer to a submission has, wherever it has them."""
    flat = {name: value for name, value in body.items() if name.endswith("_url") and value}
    return flat | {name: value for name, value in body.get("urls", {}).items() if value}


async def test_a_known_key_answers_the_job_that_it_made(driver: Driver, caller: Caller) -> None:
    key = secrets.token_hex(8)
    job_id = await driver.accepted(caller, headers=keyed(key))
    for spelling in (
        {"Idempotency-Key": key},
        {"Idempotency-Key": f'"{key}"'},
        {"X-Idempotency-Key": key},
        {"X-Idempotency-Key": f'"{key}"'},
        {"Idempotency-Key": key, "X-Idempotency-Key": f'"{key}"'},
    ):
        again = await driver.submit(caller, headers=spelling)
        assert driver.id_of(caller, again) == job_id
        assert again.status_code == 202
        assert again.headers["idempotent-replayed"] == "true"
        assert "idempotency-mismatch" not in again.headers
        assert again.headers["location"] == driver.status(caller, job_id)


async def test_another_payload_under_a_known_key_is_a_mismatch(
    driver: Driver, caller: Caller
) -> None:
    key = secrets.token_hex(8)
    job_id = await driver.accepted(caller, "one", headers=keyed(key))
    # Graphs and lists are compared only by who asks for it: they are not read otherwise.
    strict = await driver.submit(caller, "two", headers=keyed(key, Prefer="handling=strict"))
    problem(strict, 422, "idempotency_mismatch")
    same = await driver.submit(caller, "one", headers=keyed(key, Prefer="handling=strict"))
    assert (same.status_code, same.headers["idempotent-replayed"]) == (202, "true")
    assert same.headers["preference-applied"] == "handling=strict"
    lenient = await driver.submit(caller, "two", headers=keyed(key))
    assert driver.id_of(caller, lenient) == job_id
    assert lenient.headers["idempotent-replayed"] == "true"
    if driver.has(Shared.LENIENT_COMPARES):
        assert lenient.headers["idempotency-mismatch"] == "true"


async def test_rivals_with_one_key_make_one_job(driver: Driver, caller: Caller) -> None:
    key = secrets.token_hex(8)
    answers = await asyncio.gather(
        *(driver.submit(caller, headers=keyed(key)) for _ in range(RIVALS))
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({driver.id_of(caller, answer) for answer in answers}) == 1
    new = [each for each in answers if "idempotent-replayed" not in each.headers]
    assert len(new) == 1
    assert all("idempotency-mismatch" not in each.headers for each in answers)
    if driver.has(Shared.LIST):
        assert len((await caller.get(driver.listed(caller))).json()["items"]) == 1


async def test_keys_of_two_organisations_have_nothing_to_do_with_each_other(
    driver: Driver, caller: Caller, stranger: Caller
) -> None:
    key = secrets.token_hex(8)
    own = await driver.accepted(caller, headers=keyed(key))
    answer = await driver.submit(stranger, "two", headers=keyed(key))
    assert answer.status_code == 202
    assert "idempotent-replayed" not in answer.headers
    assert driver.id_of(stranger, answer) != own


@products_with(Shared.KEY_OF_ITS_USER)
async def test_keys_of_two_users_make_two_jobs(
    driver: Driver, caller: Caller, served: Served
) -> None:
    key = secrets.token_hex(8)
    own = await driver.accepted(caller, headers=keyed(key))
    colleague = Caller(
        served, caller.org, "bob", await served.deployment.create_key(caller.org, "bob")
    )
    other = await driver.accepted(colleague, headers=keyed(key))
    assert other != own
    await colleague.clear()


@products_with(Shared.KEY_OF_ITS_USER)
async def test_keys_of_two_products_make_two_jobs(driver: Driver, caller: Caller) -> None:
    key = secrets.token_hex(8)
    other = await another_product_s_job(caller, idempotency_key=key)
    answer = await driver.submit(caller, headers=keyed(key))
    assert "idempotent-replayed" not in answer.headers
    assert driver.id_of(caller, answer) != other


async def another_product_s_job(caller: Caller, **options: Any) -> str:
    """A job of the same user that is none of the driver's."""
    ticket = await caller.served.deployment.engine.submit(
        "elsewhere.post__work", {}, org=caller.org, owner=f"user:{caller.user}", **options
    )
    return ticket.id


async def test_a_key_that_is_none_is_refused(driver: Driver, caller: Caller) -> None:
    for key in ("", "x" * 256, '"open'):
        refused = await driver.submit(caller, headers=keyed(key))
        problem(refused, 400, "invalid_parameter")
        assert named_in(refused) == [("Idempotency-Key", "header")]


@products_with(Shared.KEY_OPTIONAL)
async def test_a_submission_without_a_key_is_a_job_of_its_own(
    driver: Driver, caller: Caller
) -> None:
    assert await driver.accepted(caller) != await driver.accepted(caller)


# Waiting


async def test_who_waits_gets_the_whole_job_once_it_has_ended(
    driver: Driver, caller: Caller
) -> None:
    async with caller.served.working(driver.product, driver.services):
        answer = await driver.submit(caller, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    job_id, job = driver.id_of(caller, answer), answer.json()
    assert answer.headers["preference-applied"] == "wait=60"
    assert (job[driver.state], job["terminal"]) == (driver.words.completed, True)
    assert driver.ended_well(job)
    assert answer.headers["location"] == driver.status(caller, job_id)
    read = await caller.get(driver.status(caller, job_id))
    assert (read.status_code, driver.lasting(read.json())) == (200, driver.lasting(job))
    assert read.headers["etag"] == answer.headers["etag"]
    assert "retry-after" not in read.headers


async def test_who_waits_in_vain_gets_202(driver: Driver, caller: Caller) -> None:
    answer = await driver.submit(caller, headers={"Prefer": "wait=0"})
    assert answer.status_code == 202, answer.text
    assert answer.headers["preference-applied"] == "wait=0"
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["terminal"] is False
    path = driver.status(caller, driver.id_of(caller, answer))
    for asked in ({"params": {"wait": "0"}}, {"headers": {"Prefer": "wait=0.01"}}):
        read = await caller.get(path, **asked)
        assert (read.status_code, read.json()["terminal"]) == (202, False)
        assert int(read.headers["retry-after"]) >= 1
        assert read.headers.get("preference-applied") == asked.get("headers", {}).get("Prefer")
    problem(await caller.get(path, params={"wait": "soon"}), 400, "invalid_parameter")


async def test_a_read_that_waits_is_answered_at_the_end(driver: Driver, caller: Caller) -> None:
    path = driver.status(caller, await driver.accepted(caller))
    held = await holding(caller, path, headers={"Prefer": "wait=60"})
    async with caller.served.working(driver.product, driver.services):
        answer = await held
    assert (answer.status_code, answer.headers["preference-applied"]) == (200, "wait=60")
    assert answer.json()[driver.state] == driver.words.completed


async def holding(caller: Caller, path: str, **options: Any) -> asyncio.Task[httpx2.Response]:
    """A read, once the server holds its answer."""
    before = caller.served.held
    reading = asyncio.create_task(caller.get(path, **options))

    async def is_held() -> bool:
        return caller.served.held > before

    await eventually_async(is_held, "the server holds the answer")
    return reading


async def test_a_plain_read_says_when_to_come_again(driver: Driver, caller: Caller) -> None:
    job_id = await driver.accepted(caller)
    read = await caller.get(driver.status(caller, job_id))
    assert read.status_code == (200 if driver.has(Shared.UNFINISHED_IS_200) else 202)
    assert int(read.headers["retry-after"]) >= 1
    job = read.json()
    assert (job[driver.id_in_job], job[driver.state]) == (job_id, driver.words.waiting)


async def test_a_failure_is_shown_with_its_reason(driver: Driver, caller: Caller) -> None:
    async with caller.served.working(driver.product, driver.services):
        answer = await driver.submit(caller, "one", "fail", headers={"Prefer": "wait=60"})
    job = answer.json()
    assert answer.status_code == 200, answer.text
    assert (job[driver.state], job["terminal"]) == (driver.words.failed, True)
    assert await driver.job(caller, driver.id_of(caller, answer)) == job
    assert not driver.ended_well(job)
    assert driver.reason(job)


# Reading on conditions


async def test_an_etag_changes_with_the_state(driver: Driver, caller: Caller) -> None:
    job_id = await driver.accepted(caller)
    path = driver.status(caller, job_id)
    first = await caller.get(path)
    etag = first.headers["etag"]
    for known in (etag, etag.removeprefix("W/"), f'"other", {etag}', "*"):
        same = await caller.get(path, headers={"If-None-Match": known})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
    await cancelled(driver, caller, job_id)
    changed = await caller.get(path, headers={"If-None-Match": etag})
    assert (changed.status_code, changed.json()["terminal"]) == (200, True)
    assert changed.headers["etag"] != etag
    ended = {"headers": {"If-None-Match": changed.headers["etag"]}, "params": {"wait": "60"}}
    assert (await caller.get(path, **ended)).status_code == 304  # it can change no more
    for other in ('"other"', 'W/"other"', "", "no tag"):
        assert (await caller.get(path, headers={"If-None-Match": other})).status_code == 200


async def test_a_conditional_read_holds_until_something_changes(
    driver: Driver, caller: Caller
) -> None:
    job_id = await driver.accepted(caller, "one", "hold")
    path = driver.status(caller, job_id)
    etag = (await caller.get(path)).headers["etag"]
    in_vain = await caller.get(path, params={"wait": "0.2"}, headers={"If-None-Match": etag})
    assert (in_vain.status_code, in_vain.content) == (304, b"")
    if driver.has(Shared.UNFINISHED_IS_200):
        assert int(in_vain.headers["retry-after"]) >= 1
    held = await holding(caller, path, params={"wait": "60"}, headers={"If-None-Match": etag})
    async with caller.served.working(driver.product, driver.services):
        async with asyncio.timeout(GUARD_SECONDS):
            answer = await held
        assert (answer.status_code, answer.json()["terminal"]) == (202, False)
        await caller.post(driver.cancel(caller, job_id))
        await driver.job(caller, job_id, wait=60)
    assert answer.headers["etag"] != etag


# Following


async def test_a_stream_has_the_states_and_closes_after_the_end(
    driver: Driver, caller: Caller
) -> None:
    job_id = await driver.accepted(caller)
    status, events, *_ = driver.reads(caller, job_id)
    async with caller.follow(events) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-store"
        sent = sent_by(answer)
        first = await anext(sent)
        assert (first.name, first.id) == ("state", None)
        assert first.data[driver.state] == driver.words.waiting
        async with caller.served.working(driver.product, driver.services):
            rest = [each async for each in sent]  # until it is closed
    *between, end = rest
    assert {each.name for each in between} <= {"state", "progress", "log", "chunk"}
    assert (end.name, end.id) == ("end", None)
    assert [each.name for each in rest].count("end") == 1
    assert driver.lasting(end.data) == driver.lasting((await caller.get(status)).json())


@products_with(Shared.DURABLE_EVENTS)
async def test_a_stream_resumes_without_loss_or_repeat(driver: Driver, caller: Caller) -> None:
    _, path, *_ = driver.reads(caller, await ended(driver, caller))
    async with caller.follow(path) as answer:
        whole = await events_of(answer)
    durable = [each for each in whole if each.id is not None]
    assert len(durable) >= 3
    assert {each.name for each in durable} <= {"log", "chunk"}
    numbers = [int(each.id) for each in durable if each.id is not None]
    assert numbers == sorted(set(numbers))
    for at in (0, len(durable) // 2, len(durable) - 1):
        for resume in (
            {"headers": {"Last-Event-ID": durable[at].id}},
            {"params": {"after": durable[at].id}},
        ):
            async with caller.follow(path, **resume) as answer:
                rest = await events_of(answer)
            assert [each for each in rest if each.id is not None] == durable[at + 1 :]
            assert rest[-1] == whole[-1]
    for bad in ("x", "-1", "1.5", "9" * 30):
        refused = await caller.get(path, headers={"Last-Event-ID": bad})
        problem(refused, 400, "invalid_parameter")
        assert named_in(refused) == [("Last-Event-ID", "header")]
        refused = await caller.get(path, params={"after": bad})
        problem(refused, 400, "invalid_parameter")
        assert named_in(refused) == [("after", "query")]


def named_in(refused: httpx2.Response) -> list[tuple[str, str]]:
    return [(each["field"], each["location"]) for each in refused.json()["details"]]


async def test_the_stream_of_a_job_that_has_ended_is_its_end(
    driver: Driver, caller: Caller
) -> None:
    job_id = await driver.accepted(caller)
    status, events, *_ = driver.reads(caller, job_id)
    await cancelled(driver, caller, job_id)
    async with caller.follow(events) as answer:
        *before, end = await events_of(answer)
    assert {each.name for each in before} <= {"progress"}
    assert (end.name, end.data) == ("end", (await caller.get(status)).json())


# Explaining


async def test_a_job_explains_why_it_waits(driver: Driver, caller: Caller) -> None:
    job_id = await driver.accepted(caller)
    path = f"{driver.status(caller, job_id)}/explain"
    waiting = await caller.get(path)
    body = waiting.json()
    assert (waiting.status_code, body["job_id"], body["terminal"]) == (200, job_id, False)
    assert body["summary"]
    assert body["blockers"]
    assert waiting.headers["cache-control"] == "no-store"
    assert int(waiting.headers["retry-after"]) == body["retry_after"] >= 1
    await cancelled(driver, caller, job_id)
    after = await caller.get(path)
    assert (after.status_code, after.json()["terminal"]) == (200, True)
    assert after.json()["blockers"] == []
    assert "retry-after" not in after.headers


# Cancelling


async def test_what_waits_is_cancelled_at_once_and_for_good(driver: Driver, caller: Caller) -> None:
    job_id = await driver.accepted(caller)
    job = await cancelled(driver, caller, job_id)
    assert await driver.job(caller, job_id) == job
    await assert_ended(driver, caller, job_id)
    assert await driver.job(caller, job_id) == job


async def test_what_runs_is_asked_to_stop(driver: Driver, caller: Caller) -> None:
    job_id = await driver.accepted(caller, "one", "hold")
    async with caller.served.working(driver.product, driver.services):

        async def running() -> bool:
            return bool((await driver.job(caller, job_id))[driver.state] in driver.words.running)

        await eventually_async(running, "the job runs")
        answer = await caller.post(driver.cancel(caller, job_id))
        assert answer.status_code in (200, 202), answer.text
        assert answer.json()["terminal"] is (answer.status_code == 200)
        job = await driver.job(caller, job_id, wait=60)
    assert (job[driver.state], job["terminal"]) == (driver.words.cancelled, True)


async def test_what_has_ended_is_not_cancelled(driver: Driver, caller: Caller) -> None:
    job_id = await ended(driver, caller)
    before = driver.lasting(await driver.job(caller, job_id))
    await assert_ended(driver, caller, job_id)
    assert driver.lasting(await driver.job(caller, job_id)) == before


async def assert_ended(driver: Driver, caller: Caller, job_id: str) -> None:
    answer = await caller.post(driver.cancel(caller, job_id))
    if driver.has(Shared.ENDED_CANNOT_BE_CANCELLED):
        problem(answer, 409, driver.already_ended)
    else:
        assert answer.status_code == 200
        shown = await driver.job(caller, job_id)
        assert driver.lasting(answer.json()) == driver.lasting(shown)


# Listing


@products_with(Shared.LIST)
async def test_a_list_has_every_job_once_newest_first(
    driver: Driver, caller: Caller, stranger: Caller
) -> None:
    await driver.accepted(stranger)
    submitted = [await driver.accepted(caller, f"text {number}") for number in range(5)]
    path = driver.listed(caller)
    whole = (await caller.get(path)).json()
    assert [item[driver.id_in_job] for item in whole["items"]] == submitted[::-1]
    assert whole["next"] is None
    for limit in (1, 2, 5):
        found: list[str] = []
        query: dict[str, Any] = {"limit": limit}
        while True:
            page = (await caller.get(path, params=query)).json()
            assert len(page["items"]) <= limit
            found += [item[driver.id_in_job] for item in page["items"]]
            if page["next"] is None:
                break
            query["cursor"] = page["next"]
        assert found == submitted[::-1], limit


@products_with(Shared.LIST)
async def test_a_list_is_narrowed_by_the_time_of_creation(driver: Driver, caller: Caller) -> None:
    older = [await driver.accepted(caller, f"older {number}") for number in range(2)]
    moment = datetime.now(UTC)  # the database's clock, on this machine
    newer = [await driver.accepted(caller, f"newer {number}") for number in range(2)]
    path, at = driver.listed(caller), moment.isoformat()

    async def listed(**query: Any) -> list[str]:
        found: list[str] = []
        while True:
            page = (await caller.get(path, params=query)).json()
            found += [item[driver.id_in_job] for item in page["items"]]
            if page["next"] is None:
                return found
            query["cursor"] = page["next"]

    assert await listed(created_after=at) == newer[::-1]
    assert await listed(created_before=at, limit=1) == older[::-1]
    assert await listed(created_after=at, created_before=at) == []
    in_another_zone = moment.astimezone(timezone(timedelta(hours=-9))).isoformat()
    assert await listed(created_after=in_another_zone) == newer[::-1]
    assert await listed(created_after="0001-01-01T00:00:00Z") == [*newer[::-1], *older[::-1]]
    assert await listed(created_before="9999-12-31T23:59:59Z") == [*newer[::-1], *older[::-1]]


@products_with(Shared.LIST)
async def test_an_admin_lists_everybodys_jobs_and_others_their_own(
    driver: Driver, caller: Caller, served: Served
) -> None:
    key = await served.deployment.create_key(caller.org, "bob", USER_SCOPES)
    user = Caller(served, caller.org, "bob", key)
    first, second = await driver.accepted(caller), await driver.accepted(user)
    await another_product_s_job(caller)
    await another_product_s_job(user)

    async def listed(by: Caller) -> list[str]:
        items = (await by.get(driver.listed(by))).json()["items"]
        return [item[driver.id_in_job] for item in items]

    assert await listed(user) == [second]
    all_of_them = driver.has(Shared.ADMINS_LIST_ALL)
    assert await listed(caller) == ([second, first] if all_of_them else [first])
    await user.clear()


@products_with(Shared.LIST)
async def test_a_list_refuses_what_it_cannot_read(driver: Driver, caller: Caller) -> None:
    for name, value in (
        ("cursor", "x"),
        ("cursor", ""),
        ("limit", "0"),
        ("limit", "201"),
        ("limit", "many"),
        ("created_after", "yesterday"),
        ("created_before", "2026-01-01T00:00:00"),
        ("unheard-of", "1"),
    ):
        answer = await caller.get(driver.listed(caller), params={name: value})
        problem(answer, 400, "invalid_parameter")
        assert named_in(answer) == [(name, "query")]
    assert (await caller.get(driver.listed(caller), params={"limit": 200})).status_code == 200


# Who may


async def test_another_organisation_s_job_is_as_if_it_were_not(
    driver: Driver, caller: Caller, stranger: Caller
) -> None:
    theirs, absent = await driver.accepted(stranger), to_text(new_id())
    await assert_absent(driver, caller, theirs, absent)
    # In the paths of its own organisation as well.
    for path in (*driver.reads(stranger, theirs), driver.cancel(stranger, theirs)):
        method = "POST" if path.endswith("/cancel") else "GET"
        assert (await caller.ask(method, path)).status_code == 404, path
    assert not (await driver.job(stranger, theirs))["terminal"]


async def test_a_colleague_s_job_is_as_if_it_were_not(
    driver: Driver, caller: Caller, served: Served
) -> None:
    theirs, absent = await driver.accepted(caller), to_text(new_id())
    scopes = ALL_SCOPES if driver.has(Shared.PRIVATE_AMONG_ADMINS) else USER_SCOPES
    key = await served.deployment.create_key(caller.org, "bob", scopes)
    colleague = Caller(served, caller.org, "bob", key)
    await assert_absent(driver, colleague, theirs, absent)


async def test_another_product_s_job_is_not_found(driver: Driver, caller: Caller) -> None:
    other = await another_product_s_job(caller)
    for path in driver.reads(caller, other):
        problem(await caller.get(path), 404, "job_not_found")
    problem(await caller.post(driver.cancel(caller, other)), 404, "job_not_found")


async def test_what_is_no_id_names_no_job(driver: Driver, caller: Caller) -> None:
    for job_id in ("x", "0" * 25, "0" * 27, "8" + "0" * 25):
        problem(await caller.get(driver.status(caller, job_id)), 404, "job_not_found")


async def assert_absent(driver: Driver, caller: Caller, theirs: str, absent: str) -> None:
    """All answers about the two are the same to the byte, but for the time."""
    same = {"X-Request-Id": "the-same"}
    pairs = zip(
        [*driver.reads(caller, theirs), driver.cancel(caller, theirs)],
        [*driver.reads(caller, absent), driver.cancel(caller, absent)],
        strict=True,
    )
    for one, other in pairs:
        method = "POST" if one.endswith("/cancel") else "GET"
        foreign = await caller.ask(method, one, headers=same)
        missing = await caller.ask(method, other, headers=same)
        assert foreign.status_code == 404, f"{one}: {foreign.text}"
        assert without_id(foreign, theirs) == without_id(missing, absent)


def without_id(answer: httpx2.Response, job_id: str) -> Any:
    status, headers, body = essence(answer)
    return status, headers, body.replace(job_id.encode(), b"")


async def test_without_a_key_everything_is_401(driver: Driver, caller: Caller) -> None:
    job_id = await driver.accepted(caller)
    nobody = caller.with_key(None)
    answers = [await driver.submit(nobody), await nobody.post(driver.cancel(caller, job_id))]
    answers += [await nobody.get(path) for path in driver.reads(caller, job_id)]
    if driver.has(Shared.LIST):
        answers.append(await nobody.get(driver.listed(caller)))
    for answer in answers:
        problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_key_without_the_scope_is_403(
    driver: Driver, caller: Caller, served: Served
) -> None:
    job_id = await driver.accepted(caller)

    async def without(scope: Scope) -> Caller:
        key = await served.deployment.create_key(caller.org, caller.user, ALL_SCOPES - {scope})
        return caller.with_key(key)

    reader, writer = await without(Scope.SUBMIT), await without(Scope.READ)
    answers = [await driver.submit(reader), await reader.post(driver.cancel(caller, job_id))]
    answers += [await writer.get(path) for path in driver.reads(caller, job_id)]
    for answer in answers:
        problem(answer, 403, "missing_scope")
    assert (await reader.get(driver.status(caller, job_id))).is_success


# Limits


async def test_reads_and_submissions_are_counted_and_limited(
    driver: Driver, caller: Caller, served: Served
) -> None:
    job_id = await driver.accepted(caller)  # and a voice, if it needs one
    rate = RateLimit(2, 3_600)
    key = await served.deployment.create_key(caller.org, caller.user, rate=rate)
    limited = caller.with_key(key)
    submitted = await driver.submit(limited)
    driver.id_of(caller, submitted)
    read = await limited.get(driver.status(caller, job_id))
    for at, answer in enumerate((submitted, read)):
        assert answer.is_success, answer.text
        assert answer.headers["ratelimit-limit"] == "2"
        assert answer.headers["ratelimit-remaining"] == str(1 - at)
        assert int(answer.headers["ratelimit-reset"]) >= 1
        assert answer.headers["ratelimit"]
        assert answer.headers["ratelimit-policy"]
    over = [await driver.submit(limited)]
    over += [await limited.get(path) for path in driver.reads(caller, job_id)]
    over.append(await limited.post(driver.cancel(caller, job_id)))
    for answer in over:
        problem(answer, 429, "rate_limited")
        assert int(answer.headers["retry-after"]) >= 1


async def test_a_full_backlog_takes_known_keys_only(
    driver: Driver, caller: Caller, served: Served
) -> None:
    await served.deployment.limit_org(caller.org, backlog_max=1)
    key = secrets.token_hex(8)
    job_id = await driver.accepted(caller, headers=keyed(key))

    async def full() -> bool:
        answer = await driver.submit(caller)
        if answer.status_code == 202:  # its jobs are counted now and then
            driver.id_of(caller, answer)
            return False
        problem(answer, 429, "queue_full")
        return int(answer.headers["retry-after"]) >= 1

    await eventually_async(full, "the backlog is full")
    again = await driver.submit(caller, headers=keyed(key))
    assert (again.status_code, driver.id_of(caller, again)) == (202, job_id)


# What a job leaves


@products_with(Shared.ARTIFACTS)
async def test_the_artifacts_of_a_job_are_listed(driver: Driver, caller: Caller) -> None:
    leaves = driver.has(Shared.LEAVES_ARTIFACTS)
    job_id = await (ended(driver, caller) if leaves else driver.accepted(caller))
    path = f"{driver.status(caller, job_id)}/artifacts"
    answer = await caller.get(path)
    assert answer.status_code == 200, answer.text
    items = answer.json()["items"]
    assert [item["name"] for item in items] == ([WORDS] if leaves else [])
    for item in items:
        assert (await caller.get(item["url"])).content == b"one"
    missing = await caller.get(f"{path}/nothing.txt")
    assert missing.status_code == 404


async def test_a_webhook_says_the_end_signed(driver: Driver, caller: Caller) -> None:
    target = f"/{secrets.token_hex(8)}"
    receiver = caller.served.receiver
    job_id = await driver.accepted(caller, webhook=receiver.url(target))
    async with caller.served.working(driver.product, driver.services):
        await driver.job(caller, job_id, wait=60)

    async def called() -> Any:
        return next((each for each in receiver.requests if each.target == target), None)

    request = await eventually_async(called, "the webhook came")
    secret = (await caller.get(f"/api/v1/orgs/{caller.org}/webhooks/secret")).json()["secret"]
    payload = Webhook(secret).verify(request.body, dict(request.headers))
    assert driver.told_of(payload) == job_id
    with pytest.raises(Exception, match="signature"):
        Webhook(secret).verify(request.body + b" ", dict(request.headers))


# Where all jobs are


@products_with(Shared.CONSOLE)
async def test_the_console_lists_shows_and_cancels_it(driver: Driver, caller: Caller) -> None:
    job_id = await driver.accepted(caller)
    jobs = f"/api/v1/orgs/{caller.org}/jobs"
    listed = (await caller.get(jobs, params={"surface": driver.product})).json()["items"]
    assert [(item["id"], item["surface"]) for item in listed] == [(job_id, driver.product)]
    found = (await caller.get(jobs, params={"q": job_id})).json()["items"]
    assert [item["id"] for item in found] == [job_id]
    shown = (await caller.get(f"{jobs}/{job_id}")).json()
    assert (shown["id"], shown["surface"], shown["terminal"]) == (job_id, driver.product, False)
    assert shown["urls"]["surface"] == driver.status(caller, job_id)
    assert shown["service"]
    assert shown["endpoint"]
    cancelled = await caller.post(f"{jobs}/{job_id}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert (await driver.job(caller, job_id))[driver.state] == driver.words.cancelled


# What the document says


async def test_the_document_has_every_route_with_its_statuses(
    driver: Driver, caller: Caller
) -> None:
    document, job_id = caller.served.document, to_text(new_id())
    status, events, explain, *_ = driver.reads(caller, job_id)
    refusals = {"400", "401", "403", "404", "429", "503"}
    expected = {
        ("GET", status): refusals | {"200", "202", "304"},
        ("GET", events): refusals | {"200"},
        ("GET", explain): refusals | {"200"},
        ("POST", driver.cancel(caller, job_id)): refusals | {"200", "202"},
    }
    if driver.has(Shared.LIST):
        expected["GET", driver.listed(caller)] = refusals - {"404"} | {"200"}
    for (method, path), statuses in expected.items():
        _, operation = document.operation(method, path)
        assert statuses <= set(operation["responses"]), f"{method} {path}"
        assert operation["summary"]
        assert operation["tags"] == [driver.product]
