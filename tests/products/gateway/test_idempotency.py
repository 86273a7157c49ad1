"""One idempotency key, one job."""

from __future__ import annotations

import httpx2
import pytest

from tests.deployment import Deployment, bearer
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, hand_in, problem, without_time
from tests.products.gateway.docs_service import letters

pytestmark = pytest.mark.asyncio(loop_scope="module")

REPLAYED = "idempotent-replayed"
MISMATCH = "idempotency-mismatch"


async def test_a_replay_of_an_ended_job_says_that_it_ended(shared: Deployment, key: str) -> None:
    ticket = await hand_in(shared.http, "/process", Idempotency_Key=key)
    await end_of(shared.http, ticket)
    again = await shared.http.post(
        paths.submit("/process"), json={}, headers={"Idempotency-Key": key}
    )
    assert again.status_code == 202
    assert (again.json()["status"], again.json()["terminal"]) == ("completed", True)
    assert again.headers["retry-after"] == "0"


async def test_another_payload_under_a_known_key_is_still_the_first_job(
    shared: Deployment, key: str
) -> None:
    ticket = await hand_in(shared.http, "/process", {"data": "first"}, Idempotency_Key=key)
    again = await shared.http.post(
        paths.submit("/process"), json={"data": "second"}, headers={"Idempotency-Key": key}
    )
    assert again.status_code == 202
    assert again.headers[REPLAYED] == again.headers[MISMATCH] == "true"
    assert again.json()["job_id"] == ticket["job_id"]
    assert (await end_of(shared.http, ticket))["result_summary"]["data"] == "first"


@pytest.mark.parametrize("route", [paths.submit("/process"), paths.call("/process")])
async def test_a_strict_caller_is_refused_another_payload(
    shared: Deployment, key: str, route: str
) -> None:
    headers = {"Idempotency-Key": key, "Prefer": "handling=strict"}
    first = await shared.http.post(route, json={"data": "first"}, headers=headers)
    assert first.headers["preference-applied"] == "handling=strict"
    again = await shared.http.post(route, json={"data": "first"}, headers=headers)
    assert (again.status_code, again.headers[REPLAYED]) == (first.status_code, "true")
    other = await shared.http.post(route, json={"data": "second"}, headers=headers)
    problem(other, 422, "idempotency_mismatch")


async def test_a_synchronous_call_repeats_its_result(shared: Deployment, key: str) -> None:
    headers = {"Idempotency-Key": key}
    first = await shared.http.post(paths.call("/echo"), json={"value": 1}, headers=headers)
    again = await shared.http.post(paths.call("/echo"), json={"value": 2}, headers=headers)
    assert first.json() == again.json() == 1
    assert (REPLAYED in first.headers, again.headers[REPLAYED]) == (False, "true")
    assert again.headers[MISMATCH] == "true"


async def test_a_synchronous_call_repeats_its_failure(shared: Deployment, key: str) -> None:
    headers = {"Idempotency-Key": key}
    await shared.http.post(paths.call("/fail"), json={}, headers=headers)
    again = await shared.http.post(paths.call("/fail"), json={}, headers=headers)
    problem(again, 502, "asked_to_fail")
    assert again.headers[REPLAYED] == "true"


async def test_a_key_known_from_another_service_leads_to_that_job(
    shared: Deployment, key: str
) -> None:
    await shared.start_worker(letters)
    ticket = await hand_in(shared.http, "/process", Idempotency_Key=key)
    again = await shared.http.post(
        paths.submit("/write", "letters"), json={}, headers={"Idempotency-Key": key}
    )
    assert again.headers[MISMATCH] == "true"
    assert again.json()["poll_url"] == again.headers["location"] == ticket["poll_url"]
    waited = await shared.http.post(
        paths.submit("/write", "letters"),
        json={},
        headers={"Idempotency-Key": key, "Prefer": "wait=30"},
    )
    assert (waited.status_code, waited.json()["service_id"]) == (200, "docs")


@pytest.mark.parametrize(
    "route", [paths.submit("/echo"), paths.submit("/echo") + "?wait=0", paths.call("/echo")]
)
async def test_a_key_of_another_user_tells_nothing_of_their_job(
    shared: Deployment, key: str, route: str
) -> None:
    other = bearer(await shared.create_key(user="other"))
    ticket = await hand_in(shared.http, "/echo", {"value": "secret"}, Idempotency_Key=key)
    await end_of(shared.http, ticket)
    answers = [
        await shared.http.post(
            route,
            json={"value": value},
            headers={"Idempotency-Key": key, "X-Request-Id": "the-same", **other, **prefer},
        )
        for value in ("secret", "guess")
        for prefer in ({}, {"Prefer": "handling=strict"})
    ]
    for answer in answers:
        problem(answer, 409, "idempotency_key_in_use")
        assert ticket["job_id"] not in str(answer.headers) + answer.text
        assert not {REPLAYED, MISMATCH, "location", "link"}.intersection(answer.headers)
        assert without_time(answer) == without_time(answers[0])
        assert answer.headers.keys() == answers[0].headers.keys()
    problem(await shared.http.get(ticket["poll_url"], headers=other), 404, "job_not_found")


async def test_a_key_that_is_taken_is_answered_alike_whatever_its_job_does(
    shared: Deployment, key: str
) -> None:
    other = bearer(await shared.create_key(user="other"))

    async def guessed() -> httpx2.Response:
        return await shared.http.post(
            paths.submit("/process"),
            json={},
            headers={"Idempotency-Key": key, "X-Request-Id": "the-same", **other},
        )

    ticket = await hand_in(shared.http, "/slow", Idempotency_Key=key)
    while_it_runs = await guessed()
    await shared.http.post(ticket["cancel_url"])
    await end_of(shared.http, ticket)
    after_its_end = await guessed()

    problem(while_it_runs, 409, "idempotency_key_in_use")
    assert without_time(while_it_runs) == without_time(after_its_end)


@pytest.mark.parametrize("length", [1, 255])
async def test_a_key_may_have_1_to_255_characters(shared: Deployment, length: int) -> None:
    key = "k" * length
    ticket = await hand_in(shared.http, "/process", Idempotency_Key=key)
    assert (await end_of(shared.http, ticket))["idempotency_key"] == key


@pytest.mark.parametrize(
    "given", ["", '""', "k" * 256, '"unfinished', '"a"b"', '"a\\', '"a\\n"', "tab\there"]
)
async def test_what_is_no_key_is_refused(shared: Deployment, given: str) -> None:
    answer = await shared.http.post(
        paths.submit("/process"), json={}, headers={"Idempotency-Key": given}
    )
    found = problem(answer, 400, "invalid_parameter")
    assert [(each["field"], each["location"]) for each in found["details"]] == [
        ("Idempotency-Key", "header")
    ]


async def test_two_different_keys_are_refused(shared: Deployment) -> None:
    answer = await shared.http.post(
        paths.submit("/process"),
        json={},
        headers={"Idempotency-Key": "a", "X-Idempotency-Key": "b"},
    )
    problem(answer, 400, "invalid_parameter")


@pytest.mark.parametrize("route", [paths.submit("/open") + "?wait=9", paths.call("/open")])
@pytest.mark.parametrize("foreign", [False, True])
async def test_a_stranger_neither_finds_nor_takes_a_members_key(
    shared: Deployment, key: str, route: str, foreign: bool
) -> None:
    await shared.create_org(f"org-{key}")
    headers = {"Idempotency-Key": key}
    stranger = headers.copy()
    if foreign:
        stranger |= bearer(await shared.create_key(f"org-{key}"))
    async with httpx2.AsyncClient(base_url=shared.http.base_url) as outside:
        ticket = await hand_in(shared.http, "/process", Idempotency_Key=key)
        answer = await outside.post(route, json={}, headers=stranger)
        assert answer.status_code == 200
        assert REPLAYED not in answer.headers
        assert ticket["job_id"] not in str(answer.headers) + answer.text

        taken = {"Idempotency-Key": f"{key}-taken"}
        await outside.post(route, json={}, headers=stranger | taken)
        again = await outside.post(route, json={}, headers=stranger | taken)
        assert again.headers[REPLAYED] == "true"
        job = await shared.http.get(
            again.links["job"]["url"] if "job" in again.links else again.headers["location"]
        )
        assert job.json()["idempotency_key"] == f"{key}-taken"
    members = await shared.http.post(paths.submit("/process"), json={}, headers=taken)
    assert (members.status_code, REPLAYED in members.headers) == (202, False)
