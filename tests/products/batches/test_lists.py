"""Lists that are streamed or staged: 202, and a worker takes them in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from coatcheck.products.batches.task_lists import SMALL_BYTES_MAX
from tests.contract.raw import send
from tests.deployment import Deployment, bearer
from tests.products.batches.asking import (
    ADD,
    JOBS,
    NDJSON,
    end_of,
    know_sums,
    lines,
    problem,
    stage,
    submit,
    submit_list,
    tasks_of,
    told,
)
from tests.waiting import eventually_async

MANY = 2_500


async def test_a_long_list_is_answered_before_it_is_taken_in(deployment: Deployment) -> None:
    await know_sums(deployment)
    job = await submit_list(deployment.http, lines({"a": n} for n in range(MANY)), status=202)
    assert job["status"] == "ingesting"
    assert job["counts"]["total"] == 0


async def test_a_long_list_becomes_tasks_in_its_order(working_deployment: Deployment) -> None:
    http = working_deployment.http
    job = await submit_list(http, lines({"a": n} for n in range(MANY)), status=202)
    ended = await end_of(http, job)
    assert ended["counts"]["succeeded"] == ended["counts"]["total"] == MANY
    assert ended["ingest"] == {"lines": MANY, "bad_lines": 0, "error": None}
    tasks = await tasks_of(http, job, limit=200)
    assert [task["result"]["sum"] for task in tasks] == list(range(MANY))


async def test_a_body_of_many_pieces_is_taken_as_it_comes(working_deployment: Deployment) -> None:
    http = working_deployment.http
    padding = "x" * 2_000

    async def pieces() -> AsyncIterator[bytes]:
        for n in range(MANY):
            yield lines([{"custom_id": f"{n}{padding[:200]}", "input": {"a": n}}])
            yield b"\n" * 1_000  # blank lines are no tasks

    answer = await http.post(JOBS, params=ADD, content=pieces(), headers=NDJSON)
    ended = await end_of(http, told(answer, 202))
    assert ended["counts"]["succeeded"] == MANY
    assert ended["ingest"]["bad_lines"] == 0


async def test_the_tasks_of_a_long_json_body_are_taken_in_the_same_way(
    working_deployment: Deployment,
) -> None:
    http = working_deployment.http
    job = await submit(http, [{"a": n} for n in range(1_200)], status=202)
    ended = await end_of(http, job)
    assert ended["counts"]["succeeded"] == 1_200


async def test_a_staged_list_is_put_to_a_signed_url_and_then_named(
    working_deployment: Deployment,
) -> None:
    http = working_deployment.http
    upload = await stage(http, lines({"a": n} for n in range(MANY)))
    job = await submit(http, status=202, source={"upload_id": upload})
    ended = await end_of(http, job)
    assert ended["counts"]["succeeded"] == MANY


async def test_an_upload_is_used_once(deployment: Deployment) -> None:
    await know_sums(deployment)
    upload = await stage(deployment.http, b'{"a": 1}\n')
    await submit(deployment.http, status=202, source={"upload_id": upload})
    again = await deployment.http.post(JOBS, json=ADD | {"source": {"upload_id": upload}})
    problem(again, 409, "upload_already_used")


async def test_an_upload_without_a_list_is_refused(deployment: Deployment) -> None:
    await know_sums(deployment)
    upload = told(await deployment.http.post("/v1/uploads"), 201)["upload_id"]
    answer = await deployment.http.post(JOBS, json=ADD | {"source": {"upload_id": upload}})
    problem(answer, 409, "upload_missing")


async def test_somebody_elses_upload_is_as_good_as_none(deployment: Deployment) -> None:
    await know_sums(deployment)
    upload = await stage(deployment.http, b'{"a": 1}\n')
    await deployment.create_org("other")
    answers = []
    for key in (
        await deployment.create_key(user="colleague"),
        await deployment.create_key("other"),
    ):
        for name in (upload, "0" * 26, "not an id, but of that length"[:26]):
            answer = await deployment.http.post(
                JOBS, json=ADD | {"source": {"upload_id": name}}, headers=bearer(key)
            )
            answers.append(problem(answer, 409, "upload_missing")["detail"])
    assert len(set(answers)) == 1


async def test_a_malformed_line_fails_alone_and_is_listed_by_its_number(
    working_deployment: Deployment,
) -> None:
    http = working_deployment.http
    data = b'{"a": 1}\nnot json\n\n{"a": 2}\n{"a": NaN}\n\xff\n{"a": 3}'
    job = await submit_list(http, data, status=202)
    ended = await end_of(http, job)
    assert ended["counts"]["succeeded"] == ended["counts"]["total"] == 3
    assert ended["ingest"]["bad_lines"] == 3
    page = told(await http.get(job["urls"]["bad_lines"], params={"limit": 2}), 200)
    rest = told(
        await http.get(job["urls"]["bad_lines"], params={"limit": 2, "cursor": page["next"]}), 200
    )
    bad = page["items"] + rest["items"]
    assert [line["line"] for line in bad] == [2, 5, 6]
    assert bad[2]["code"] == "not_utf8"
    assert rest["next"] is None


@pytest.mark.parametrize("data", [b"nothing usable\n", b"\n\n  \n"])
async def test_a_list_without_a_usable_line_fails_its_ingest_and_can_be_deleted(
    working_deployment: Deployment, data: bytes
) -> None:
    http = working_deployment.http
    job = await submit_list(http, data, status=202)
    ended = await end_of(http, job)
    assert (ended["status"], ended["terminal"]) == ("failed_ingest", True)
    assert ended["ingest"]["error"]["code"] in ("no_usable_line", "list_empty")
    assert (await http.delete(job["urls"]["poll"])).status_code == 204
    problem(await http.get(job["urls"]["poll"]), 404, "job_not_found")


async def test_an_empty_body_is_refused_at_once(deployment: Deployment) -> None:
    await know_sums(deployment)
    answer = await deployment.http.post(JOBS, params=ADD, content=b"", headers=NDJSON)
    problem(answer, 400, "invalid_body")


async def test_a_list_over_the_bound_is_refused_before_it_is_read(deployment: Deployment) -> None:
    await know_sums(deployment)
    path = f"{JOBS}?service=sums&endpoint=/add"
    answer = await send(
        deployment,
        "POST",
        path,
        b"Content-Type: application/x-ndjson",
        b"Content-Length: 10000000001",
    )
    assert (answer.status, answer.problem()["code"]) == (413, "body_too_large")


async def test_the_beginning_of_a_list_counts_against_the_budget_of_bodies(
    deployment: Deployment,
) -> None:
    await know_sums(deployment)
    bodies = deployment.context.bodies

    async def held(size: int) -> None:
        async def counted() -> bool:
            return bodies.held_bytes == size

        await eventually_async(counted, f"{size} bytes of bodies are reserved")

    async with begun_list(deployment, b"Content-Length: 5000"):
        await held(5_000)
        async with begun_list(deployment, b"Content-Length: 9000000000"):
            await held(5_000 + SMALL_BYTES_MAX)
            async with begun_list(deployment, b"Transfer-Encoding: chunked"):
                await held(5_000 + 2 * SMALL_BYTES_MAX)
            await held(5_000 + SMALL_BYTES_MAX)
        await held(5_000)
        assert (await submit_list(deployment.http, lines([{"a": 1}])))["counts"]["total"] == 1
    await held(0)


@asynccontextmanager
async def begun_list(deployment: Deployment, length: bytes) -> AsyncIterator[None]:
    """A list of which only the head has come."""
    url = deployment.http.base_url
    _, writer = await asyncio.open_connection(str(url.host), url.port)
    head = [
        b"POST %b?service=sums&endpoint=/add HTTP/1.1" % JOBS.encode(),
        b"Host: localhost",
        b"Authorization: Bearer " + deployment.key.encode(),
        b"Content-Type: application/x-ndjson",
        length,
    ]
    try:
        writer.write(b"\r\n".join([*head, b"", b""]))
        await writer.drain()
        yield
    finally:
        writer.transport.abort()
