"""The whole surface on each blob store: archives come, are analysed, and nothing of them stays.

What a store holds is asked of the store, through its own interface, never looked up on a disk.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.pieces import PIECE_BYTES, store_pieces
from coatcheck.domain.ids import new_id
from coatcheck.products.graphs.analysis_request import RESULT_INLINE_BYTES_MAX
from coatcheck.settings.parsers import GRAPH_OPERATIONS
from tests.blobs.stores import BlobStore
from tests.deployment import Deployment
from tests.products.graphs.archives import PROGRAM, post, zipped
from tests.products.graphs.gated import THREE_PIECES, post_through
from tests.products.graphs.stored import complete_receipt, inputs_in, mechanisms, sweep
from tests.waiting import eventually_async

ARCHIVE = zipped(PROGRAM)
SLOW = zipped(
    {
        f"m{number}.py": "\n".join(f"def f{at}(): return g{at}()" for at in range(20_000))
        for number in range(40)
    }
)
"""Takes far longer to parse than it takes to ask for its end."""
RIVALS = 3


@pytest.fixture
async def deployment(
    dsn: str, tmp_path: Path, blob_store: BlobStore, container: BlobContainer
) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path, blob_url=blob_store.url) as opened:
        yield opened
    assert await inputs_in(container) == []


async def ended(deployment: Deployment, answer: httpx2.Response) -> dict[str, Any]:
    """The job once it has ended."""
    assert answer.status_code in (200, 202), answer.text
    read = await deployment.http.get(f"{answer.json()['urls']['poll']}?wait=60")
    assert read.status_code == 200, read.text
    body: dict[str, Any] = read.json()
    return body


async def test_an_archive_of_several_pieces_is_stored_whole_analysed_and_deleted(
    deployment: Deployment, container: BlobContainer
) -> None:
    answer = await post(deployment.http, THREE_PIECES, "k")
    keys = await inputs_in(container)
    assert [key[-6:] for key in keys] == ["/00000", "/00001", "/00002"]
    assert b"".join([await container.get(key) for key in keys]) == THREE_PIECES
    assert len(await container.get(keys[0])) == PIECE_BYTES
    await deployment.start_graphs_worker()
    body = await ended(deployment, answer)
    assert body["status"] == "completed"
    assert body["result"]["stats"]["calls"]["resolved"] == 1
    receipt = await complete_receipt(deployment, body)
    assert receipt["bytes"] == len(THREE_PIECES)
    assert receipt["contentHash"] == f"sha256:{hashlib.sha256(THREE_PIECES).hexdigest()}"
    assert mechanisms(receipt) == {"blob": "worker", "disk": "worker", "database": "end_of_job"}


async def test_every_operation_answers_and_leaves_a_complete_receipt(
    deployment: Deployment,
) -> None:
    await deployment.start_graphs_worker()
    answers = await asyncio.gather(
        *(
            post(deployment.http, ARCHIVE, operation, operation=operation)
            for operation in GRAPH_OPERATIONS
        )
    )
    for operation, answer in zip(GRAPH_OPERATIONS, answers, strict=True):
        body = await ended(deployment, answer)
        assert (body["status"], body["operation"]) == ("completed", operation)
        assert body["result"]["stats"]["filesProcessed"] == 3
        receipt = await complete_receipt(deployment, body)
        assert receipt["operation"] == operation
        assert mechanisms(receipt) == {"blob": "worker", "disk": "worker", "database": "end_of_job"}


async def test_a_graph_too_large_for_a_row_comes_back_from_the_store(
    deployment: Deployment, container: BlobContainer
) -> None:
    await deployment.start_graphs_worker()
    functions = "\n".join(f"def f{number}():\n    f{number + 1}()" for number in range(4_000))
    answer = await post(deployment.http, zipped({"large.py": functions}), "k")
    read = await deployment.http.get(f"{answer.json()['urls']['poll']}?wait=60")
    assert len(read.content) > RESULT_INLINE_BYTES_MAX
    body = read.json()
    calls = [each for each in body["result"]["graph"]["relationships"] if each["type"] == "calls"]
    assert body["result"]["stats"]["calls"]["resolved"] == len(calls) == 3_999
    (key,) = [key async for page in container.keys_under("artifacts") for key in page]
    assert await container.get(key) in read.content
    await complete_receipt(deployment, body)
    assert await inputs_in(container) == []


async def test_rivals_with_one_key_get_one_job_and_the_losers_delete_their_pieces(
    deployment: Deployment, container: BlobContainer
) -> None:
    async def all_are_uploading() -> None:
        async def look() -> bool:
            return len(await inputs_in(container)) >= RIVALS

        await eventually_async(look, "a piece of every rival is stored")

    answers = await asyncio.gather(
        *(
            post_through(all_are_uploading, deployment.http, THREE_PIECES, "k")
            for _ in range(RIVALS)
        )
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["jobId"] for answer in answers}) == 1
    assert sorted(answer.headers["X-Usage-Units"] for answer in answers) == ["0", "0", "1"]
    keys = await inputs_in(container)
    assert [key[-6:] for key in keys] == ["/00000", "/00001", "/00002"]
    assert len({key[:-6] for key in keys}) == 1
    await deployment.start_graphs_worker()
    body = await ended(deployment, answers[0])
    assert body["status"] == "completed"
    await complete_receipt(deployment, body)


async def test_a_failed_job_leaves_nothing(deployment: Deployment) -> None:
    await deployment.start_graphs_worker()
    broken = bytearray(zipped({"a.py": "x = 1\n" * 100}, method=0))
    broken[broken.index(b"x = 1")] ^= 1  # the checksum is not true any more
    body = await ended(deployment, await post(deployment.http, bytes(broken), "k"))
    assert (body["status"], body["errorCode"]) == ("failed", "archive_rejected")
    receipt = await complete_receipt(deployment, body)
    assert mechanisms(receipt) == {"blob": "worker", "disk": "worker", "database": "end_of_job"}


async def test_a_job_cancelled_while_it_waits_leaves_nothing(
    deployment: Deployment, container: BlobContainer
) -> None:
    answer = await post(deployment.http, THREE_PIECES, "k")
    assert len(await inputs_in(container)) == 3
    assert (await deployment.http.post(answer.json()["urls"]["cancel"])).status_code == 200
    deployment.start_maintenance()
    receipt = await complete_receipt(deployment, answer.json())
    assert mechanisms(receipt) == {"blob": "upkeep", "database": "end_of_job"}


async def test_a_job_cancelled_while_it_runs_leaves_nothing(deployment: Deployment) -> None:
    await deployment.start_graphs_worker()
    answer = await post(deployment.http, SLOW, "k")
    urls = answer.json()["urls"]

    async def parsing() -> bool:
        return "progress" in (await deployment.http.get(urls["poll"])).json()

    await eventually_async(parsing, "files are parsed")
    assert (await deployment.http.post(urls["cancel"])).status_code == 202
    body = await ended(deployment, answer)
    assert (body["status"], body["errorCode"]) == ("failed", "cancelled")
    receipt = await complete_receipt(deployment, body)
    assert mechanisms(receipt) == {"blob": "worker", "disk": "worker", "database": "end_of_job"}


async def test_a_refused_archive_leaves_nothing_and_its_key_free(
    deployment: Deployment, container: BlobContainer
) -> None:
    refused = await post(deployment.http, THREE_PIECES + b"\n", "k")
    assert refused.status_code == 422
    assert refused.json()["code"] == "archive_rejected"
    assert await inputs_in(container) == []
    answer = await post(deployment.http, ARCHIVE, "k")
    assert (answer.status_code, answer.headers["X-Usage-Units"]) == (202, "1")
    await deployment.http.post(answer.json()["urls"]["cancel"])
    deployment.start_maintenance()
    await complete_receipt(deployment, answer.json())


async def test_an_archive_that_nobody_works_on_is_deleted_when_its_time_is_up(
    dsn: str, tmp_path: Path, blob_store: BlobStore, container: BlobContainer
) -> None:
    async with Deployment(
        dsn, tmp_path, blob_url=blob_store.url, archive_ttl_seconds=1
    ) as deployment:
        answer = await post(deployment.http, THREE_PIECES, "k")
        assert len(await inputs_in(container)) == 3
        deployment.start_maintenance()
        receipt = await complete_receipt(deployment, answer.json())
        # Whichever of two loops came first: the one that ends late jobs, or the one that deletes.
        assert mechanisms(receipt) in (
            {"blob": "ttl", "database": "end_of_job"},
            {"blob": "upkeep", "database": "end_of_job"},
        )
        body = await ended(deployment, answer)
        assert (body["status"], body["errorCode"]) == ("failed", "start_deadline_passed")
    assert await inputs_in(container) == []


async def test_pieces_of_an_upload_that_died_are_swept_and_those_of_a_job_are_not(
    deployment: Deployment, container: BlobContainer
) -> None:
    answer = await post(deployment.http, THREE_PIECES, "k")
    wanted = await inputs_in(container)

    async def cut_short() -> AsyncIterator[bytes]:
        yield THREE_PIECES[: PIECE_BYTES + 1]

    await store_pieces(container, await deployment.engine.new_input_key(new_id()), cut_short())
    assert len(await inputs_in(container)) == len(wanted) + 2
    await sweep(deployment, container)
    assert await inputs_in(container) == wanted
    await deployment.start_graphs_worker()
    body = await ended(deployment, answer)
    assert body["status"] == "completed"
    await complete_receipt(deployment, body)


async def test_a_caller_who_leaves_in_the_middle_leaves_nothing(
    deployment: Deployment, container: BlobContainer
) -> None:
    async def leave() -> None:
        async def look() -> list[str]:
            return await inputs_in(container)

        await eventually_async(look, "the first piece is stored")
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        await post_through(leave, deployment.http, THREE_PIECES, "k")

    async def nothing_left() -> bool:
        return not await inputs_in(container)

    await eventually_async(nothing_left, "the pieces are deleted")
