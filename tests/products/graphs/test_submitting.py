"""Handing archives in over a socket, and what is left behind when that fails. No worker works."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import httpx2
import pytest

from coatcheck.domain.ids import from_text
from coatcheck.domain.limits import ARCHIVE_BYTES_MAX
from tests.deployment import Deployment, bearer
from tests.http.auth import stripe_events
from tests.products.graphs.archives import MIB, PROGRAM, form, post, zipped
from tests.waiting import eventually, eventually_async

ARCHIVE = zipped(PROGRAM)
OTHER_ARCHIVE = zipped({"a.py": "x = 1\n"})


def blobs_in(folder: Path) -> list[str]:
    files = ((Path(at), names) for at, _, names in os.walk(folder / "blobs"))
    return [str((at / name).relative_to(folder)) for at, names in files for name in names]


async def test_an_archive_handed_in_is_a_job_with_all_its_urls(deployment: Deployment) -> None:
    answer = await post(deployment.http, ARCHIVE, "k")
    body = answer.json()
    job = body["jobId"]
    assert answer.status_code == 202
    assert body == {
        "status": "pending",
        "jobId": job,
        "terminal": False,
        "operation": "call",
        "retryAfter": 10,
        "urls": {
            "poll": f"/v1/graphs/jobs/{job}",
            "events": f"/v1/graphs/jobs/{job}/events",
            "cancel": f"/v1/graphs/jobs/{job}/cancel",
            "receipt": f"/v1/graphs/jobs/{job}/receipt",
        },
    }
    assert answer.headers["Location"] == body["urls"]["poll"]
    assert answer.headers["Retry-After"] == "10"
    assert answer.headers["X-API-Version"] == "1"
    assert answer.headers["X-Usage-Units"] == "1"
    assert "Idempotent-Replayed" not in answer.headers


async def test_polling_is_handing_it_in_again(deployment: Deployment) -> None:
    first = await post(deployment.http, ARCHIVE, "k")
    again = await post(deployment.http, ARCHIVE, "k")
    assert again.status_code == 202
    assert again.json() == first.json()
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["X-Usage-Units"] == "0"
    assert "Idempotency-Mismatch" not in again.headers


async def test_a_known_key_is_answered_before_its_body_is_read(deployment: Deployment) -> None:
    first = await post(deployment.http, ARCHIVE, "k")
    address = urlsplit(str(deployment.http.base_url))
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = (
        "POST /v1/graphs/call HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n"
        f"Authorization: Bearer {deployment.key}\r\nContent-Length: {50 * MIB}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    writer.write(head.encode())  # and not one byte of the body
    answer = await reader.readuntil(first.json()["jobId"].encode())
    writer.close()
    assert answer.startswith(b"HTTP/1.1 202")


async def test_a_key_is_needed(deployment: Deployment) -> None:
    answer = await deployment.http.post("/v1/graphs/parse", files=form(ARCHIVE))
    assert answer.status_code == 400
    assert answer.json()["code"] == "idempotency_key_required"


async def test_a_key_belongs_to_its_user_and_their_api_key(deployment: Deployment) -> None:
    jobs = {(await post(deployment.http, ARCHIVE, "k")).json()["jobId"]}
    for user in ("dev", "other"):
        other_key = await deployment.create_key(user=user)
        answer = await post(deployment.http, ARCHIVE, "k", **bearer(other_key))
        assert "Idempotent-Replayed" not in answer.headers
        jobs.add(answer.json()["jobId"])
    assert len(jobs) == 3


async def test_the_first_submission_wins_and_another_operation_is_told_so(
    deployment: Deployment,
) -> None:
    first = await post(deployment.http, ARCHIVE, "k")
    other = await post(deployment.http, ARCHIVE, "k", operation="parse")
    assert other.json()["jobId"] == first.json()["jobId"]
    assert other.json()["operation"] == "call"
    assert other.headers["Idempotency-Mismatch"] == "true"
    strict = await post(deployment.http, ARCHIVE, "k", operation="parse", Prefer="handling=strict")
    assert strict.status_code == 422
    assert strict.json()["code"] == "idempotency_mismatch"


async def test_rivals_with_one_key_get_one_job_and_one_archive_is_kept(
    deployment: Deployment, tmp_path: Path
) -> None:
    large = zipped({**PROGRAM, "noise.bin": hashlib.shake_256(b"x").digest(3 * MIB)})
    answers = await asyncio.gather(*(post(deployment.http, large, "k") for _ in range(6)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["jobId"] for answer in answers}) == 1
    assert sum(answer.headers["X-Usage-Units"] == "1" for answer in answers) == 1
    assert len(blobs_in(tmp_path)) == 1


async def test_rivals_with_another_archive_are_told_of_the_mismatch(deployment: Deployment) -> None:
    archives = [zipped({"a.py": f"x = {number}\n"}) for number in range(4)]
    answers = await asyncio.gather(*(post(deployment.http, archive, "k") for archive in archives))
    assert len({answer.json()["jobId"] for answer in answers}) == 1
    created = [answer for answer in answers if answer.headers["X-Usage-Units"] == "1"]
    assert len(created) == 1


async def test_the_archive_is_stored_whole_with_its_hash(
    deployment: Deployment, tmp_path: Path
) -> None:
    answer = await post(deployment.http, ARCHIVE, "k")
    record = await deployment.engine.input_of(answer.json()["jobId"])
    assert record is not None
    assert record.sha256 == hashlib.sha256(ARCHIVE).digest()
    assert record.size == len(ARCHIVE)
    (blob,) = blobs_in(tmp_path)
    assert (tmp_path / blob).read_bytes() == ARCHIVE


BAD_FORMS = {
    "no form": (b"{}", "application/json", 415, "unsupported_media_type"),
    "no boundary": (b"", "multipart/form-data", 415, "unsupported_media_type"),
    "no part": (b"--b--\r\n", "multipart/form-data; boundary=b", 400, "invalid_parameter"),
    "another part": (
        b'--b\r\nContent-Disposition: form-data; name="zip"\r\n\r\nx\r\n--b--\r\n',
        "multipart/form-data; boundary=b",
        400,
        "invalid_parameter",
    ),
    "the part twice": (
        b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n' * 2 + b"--b--\r\n",
        "multipart/form-data; boundary=b",
        400,
        "invalid_parameter",
    ),
    "breaks off": (
        b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx',
        "multipart/form-data; boundary=b",
        400,
        "invalid_body",
    ),
    "no boundary in the body": (
        b"something else",
        "multipart/form-data; boundary=b",
        400,
        "invalid_body",
    ),
    "not an archive": (
        b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--\r\n',
        "multipart/form-data; boundary=b",
        422,
        "archive_rejected",
    ),
    "an empty file": (
        b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n\r\n--b--\r\n',
        "multipart/form-data; boundary=b",
        422,
        "archive_rejected",
    ),
}


@pytest.mark.parametrize("name", BAD_FORMS)
async def test_a_bad_form_gets_its_clear_error_and_leaves_nothing(
    deployment: Deployment, tmp_path: Path, name: str
) -> None:
    body, media_type, status, code = BAD_FORMS[name]
    answer = await deployment.http.post(
        "/v1/graphs/call",
        content=body,
        headers={"Content-Type": media_type, "Idempotency-Key": "k"},
    )
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert blobs_in(tmp_path) == []
    # The key is free: what was refused was no submission.
    assert (await post(deployment.http, ARCHIVE, "k")).headers["X-Usage-Units"] == "1"


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    deployment: Deployment,
) -> None:
    address = urlsplit(str(deployment.http.base_url))
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        (
            "POST /v1/graphs/call HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n"
            f"Authorization: Bearer {deployment.key}\r\n"
            f"Content-Length: {ARCHIVE_BYTES_MAX + MIB}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
        ).encode()
    )
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 413")


async def test_a_caller_who_leaves_in_the_middle_leaves_nothing(
    deployment: Deployment, tmp_path: Path
) -> None:
    address = urlsplit(str(deployment.http.base_url))
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        (
            "POST /v1/graphs/call HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n"
            f"Authorization: Bearer {deployment.key}\r\nContent-Length: {40 * MIB}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
            '--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n'
        ).encode()
    )
    for _ in range(20):  # more than two pieces
        writer.write(bytes(MIB))
        await writer.drain()
    await asyncio.to_thread(
        eventually, lambda: bool(blobs_in(tmp_path)), "the first piece is stored"
    )
    writer.close()
    await asyncio.to_thread(eventually, lambda: not blobs_in(tmp_path), "the pieces are deleted")


async def test_a_revoked_key_is_refused_at_its_next_poll(deployment: Deployment) -> None:
    key = await deployment.create_key()
    answer = await post(deployment.http, ARCHIVE, "k", **bearer(key))
    job = answer.json()["urls"]["poll"]
    assert (await deployment.http.get(job, headers=bearer(key))).status_code == 202
    await deployment.revoke_key(key)

    async def refused() -> bool:
        polled = await post(deployment.http, ARCHIVE, "k", **bearer(key))
        read = await deployment.http.get(job, headers=bearer(key))
        return (polled.status_code, read.status_code) == (401, 401)

    await eventually_async(refused, "the revoked key is refused")


async def test_a_job_of_another_user_is_not_there(deployment: Deployment) -> None:
    poll = (await post(deployment.http, ARCHIVE, "k")).json()["urls"]["poll"]
    other = bearer(await deployment.create_key(user="other"))
    for path in (poll, f"{poll}/receipt", f"{poll}/events"):
        assert (await deployment.http.get(path, headers=other)).status_code == 404
    assert (await deployment.http.post(f"{poll}/cancel", headers=other)).status_code == 404


async def test_a_waiting_job_can_be_cancelled_and_counts_as_failed(deployment: Deployment) -> None:
    poll = (await post(deployment.http, ARCHIVE, "k")).json()["urls"]["poll"]
    cancelled = await deployment.http.post(f"{poll}/cancel")
    assert cancelled.status_code == 200
    again = await post(deployment.http, ARCHIVE, "k")
    assert again.status_code == 200
    assert again.json()["status"] == "failed"
    assert again.json()["errorCode"] == "cancelled"
    assert isinstance(again.json()["error"], str)
    assert (await deployment.http.post(f"{poll}/cancel")).status_code == 409


async def test_what_a_poll_says_of_retrying_is_set_for_each_operation(
    dsn: str, tmp_path: Path
) -> None:
    async with Deployment(dsn, tmp_path, graphs_retry_after_seconds={"domain": 30}) as deployment:
        answer = await post(deployment.http, ARCHIVE, "a", operation="domain")
        assert answer.headers["Retry-After"] == "30"
        assert answer.json()["retryAfter"] == 30
        assert (await post(deployment.http, ARCHIVE, "b")).headers["Retry-After"] == "10"


async def test_fields_of_the_query_that_are_not_known_are_ignored_and_named(
    deployment: Deployment,
) -> None:
    query = {"previousDomains": '[{"name":"Billing","subdomainCount":3}]'}
    for _ in range(2):  # a submission, and a poll by the same request
        answer = await deployment.http.post(
            "/v1/graphs/supermodel",
            params=query,
            files=form(ARCHIVE),
            headers={"Idempotency-Key": "k"},
        )
        assert answer.status_code == 202, answer.text
        assert "previousDomains" in answer.headers["Warning"]
        assert answer.headers["Warning"].startswith("299 - ")
    job = answer.json()["urls"]["poll"]
    read = await deployment.http.get(job, params=query)
    assert (read.status_code, "previousDomains" in read.headers["Warning"]) == (202, True)
    assert "Warning" not in (await deployment.http.get(job, params={"wait": "0"})).headers
    assert (await deployment.http.get(job, params={"wait": "soon"})).status_code == 400


async def _one_that_took_long(deployment: Deployment, dsn: str) -> None:
    """A job of ``call`` that has ended, and that took 100 seconds as far as anybody can see."""
    answer = await post(deployment.http, ARCHIVE, "long")
    job = answer.json()["jobId"]

    async def has_ended() -> bool:
        return (await deployment.engine.get(job)).terminal

    await eventually_async(has_ended, "the first one has ended")
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "UPDATE jobs SET created_at = finished_at - interval '100 s',"
            " started_at = finished_at - interval '100 s' WHERE id = $1",
            from_text(job),
        )
    finally:
        await connection.close()
    assert (await post(deployment.http, ARCHIVE, "long")).status_code == 200


async def test_retry_after_follows_what_such_jobs_take(dsn: str, tmp_path: Path) -> None:
    async with Deployment(dsn, tmp_path) as deployment:
        unknown = await post(deployment.http, ARCHIVE, "parse", operation="parse")
        assert (unknown.headers["Retry-After"], unknown.json()["retryAfter"]) == ("10", 10)
        worker = await deployment.start_graphs_worker()
        await _one_that_took_long(deployment, dsn)
        worker.stop()
        known = await post(deployment.http, ARCHIVE, "next")
        # Half of what is left of 100 seconds. It is a while younger than that by now.
        seconds = int(known.headers["Retry-After"])
        assert 10 < seconds <= 50
        assert known.json()["retryAfter"] == seconds
        polled = await deployment.http.get(known.json()["urls"]["poll"])
        assert 10 < int(polled.headers["Retry-After"]) <= 50
        other = await post(deployment.http, ARCHIVE, "domain", operation="domain")
        assert other.headers["Retry-After"] == "10"


async def test_a_number_that_is_set_stands_whatever_such_jobs_take(
    dsn: str, tmp_path: Path
) -> None:
    async with Deployment(dsn, tmp_path, graphs_retry_after_seconds={"call": 3}) as deployment:
        worker = await deployment.start_graphs_worker()
        await _one_that_took_long(deployment, dsn)
        worker.stop()
        answer = await post(deployment.http, ARCHIVE, "next")
        assert (answer.headers["Retry-After"], answer.json()["retryAfter"]) == ("3", 3)


async def test_every_poll_looks_at_the_plan_again(dsn: str, tmp_path: Path) -> None:
    async with Deployment(dsn, tmp_path, stripe_webhook_secret=stripe_events.SECRET) as deployment:
        checkout = stripe_events.checkout(client_reference_id="default")
        await stripe_events.told(deployment.http, checkout)
        answer = await post(deployment.http, ARCHIVE, "k")
        assert answer.status_code == 202, answer.text
        unpaid = stripe_events.subscription("unpaid", at=stripe_events.BEGAN + 1)
        await stripe_events.told(deployment.http, unpaid)

        async def refused() -> bool:
            polls = [
                await post(deployment.http, ARCHIVE, "k"),
                await deployment.http.get(answer.json()["urls"]["poll"]),
                await deployment.http.get(answer.json()["urls"]["receipt"]),
            ]
            return {poll.status_code for poll in polls} == {402}

        await eventually_async(refused, "an unpaid plan is refused")


async def test_external_calls_are_asked_for_in_the_query(deployment: Deployment) -> None:
    async def asked(said: str, key: str) -> httpx2.Response:
        return await post(deployment.http, ARCHIVE, key, operation=f"call?externalCalls={said}")

    assert (await asked("true", "yes")).status_code == 202
    refused = await asked("perhaps", "no")
    assert refused.status_code == 400
    assert "externalCalls" in refused.text
    elsewhere = await post(deployment.http, ARCHIVE, "e", operation="parse?externalCalls=true")
    assert elsewhere.status_code == 202
    assert "externalCalls" in elsewhere.headers["warning"], "a graph without calls"
