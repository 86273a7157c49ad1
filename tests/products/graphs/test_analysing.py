"""Archives in, graphs out: over a socket, with a worker and its parsers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from coatcheck.products.graphs.analysis_request import RESULT_INLINE_BYTES_MAX
from coatcheck.settings.parsers import GRAPH_OPERATIONS
from tests.deployment import Deployment
from tests.products.graphs.archives import PROGRAM, post, zipped
from tests.waiting import eventually_async

ARCHIVE = zipped(PROGRAM)
LABELS = {
    "dependency": {"File"},
    "call": {"File", "Class", "Function"},
    "domain": {"File", "Class", "Function", "Domain"},
    "parse": {"Directory", "File", "Class", "Function"},
    "supermodel": {"Directory", "File", "Class", "Function", "Domain"},
}


async def analysed(
    deployment: Deployment, archive: bytes, operation: str = "supermodel", key: str = "k"
) -> dict[str, Any]:
    answer = await post(deployment.http, archive, key, operation=operation, Prefer="wait=60")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def calls_in(result: Mapping[str, Any]) -> set[tuple[str, str, int]]:
    names = {
        node["id"]: node["properties"].get("qualifiedName", node["properties"].get("path"))
        for node in result["graph"]["nodes"]
    }
    return {
        (names[each["startNode"]], names[each["endNode"]], each["properties"]["line"])
        for each in result["graph"]["relationships"]
        if each["type"] == "calls"
    }


@pytest.mark.parametrize("operation", GRAPH_OPERATIONS)
async def test_every_operation_answers_its_graph(deployment: Deployment, operation: str) -> None:
    await deployment.start_graphs_worker()
    body = await analysed(deployment, ARCHIVE, operation)
    assert (body["status"], body["terminal"], body["operation"]) == ("completed", True, operation)
    result = body["result"]
    nodes, relationships = result["graph"]["nodes"], result["graph"]["relationships"]
    assert {label for node in nodes for label in node["labels"]} == LABELS[operation]
    assert result["stats"]["nodeCount"] == len(nodes)
    assert result["stats"]["relationshipCount"] == len(relationships)
    assert result["stats"]["filesProcessed"] == 3
    assert result["metadata"]["fileCount"] == 3
    assert result["metadata"]["languages"] == ["python"]
    known = {node["id"] for node in nodes}
    assert len(known) == len(nodes)
    for each in relationships:
        assert each["startNode"] in known
        assert each["endNode"] in known
    if operation in ("call", "supermodel", "domain"):
        assert calls_in(result) == {("Till.total", "price", 6)}
    assert ("domains" in result) == (operation in ("domain", "supermodel"))


async def test_a_completed_job_is_read_by_its_id_and_by_sending_it_again(
    deployment: Deployment,
) -> None:
    await deployment.start_graphs_worker()
    body = await analysed(deployment, ARCHIVE, "call")
    read = await deployment.http.get(body["urls"]["poll"])
    again = await post(deployment.http, ARCHIVE, "k")
    assert (read.status_code, again.status_code) == (200, 200)
    assert read.json() == again.json() == body
    assert "Retry-After" not in read.headers
    assert read.headers["X-Usage-Units"] == "0"
    known = {"If-None-Match": read.headers["ETag"]}
    assert (await deployment.http.get(body["urls"]["poll"], headers=known)).status_code == 304


async def test_domains_hold_every_file_and_function(deployment: Deployment) -> None:
    await deployment.start_graphs_worker()
    result = (await analysed(deployment, ARCHIVE, "domain"))["result"]
    domains = {domain["id"] for domain in result["domains"]}
    nodes = result["graph"]["nodes"]
    files = {node["id"] for node in nodes if node["labels"] == ["File"]}
    functions = {node["id"] for node in nodes if node["labels"] == ["Function"]}
    assert {each["fileId"] for each in result["fileAssignments"]} == files
    assert {each["functionId"] for each in result["functionAssignments"]} == functions
    for each in (*result["fileAssignments"], *result["functionAssignments"]):
        assert each["domainId"] in domains
    assert {domain["namedBy"] for domain in result["domains"]} == {"clustering"}
    assert all("samplePaths" not in domain for domain in result["domains"])


async def test_a_graph_too_large_for_a_row_is_streamed_from_the_blob_store(
    deployment: Deployment,
) -> None:
    await deployment.start_graphs_worker()
    functions = "\n".join(f"def f{number}():\n    f{number + 1}()" for number in range(4_000))
    archive = zipped({"large.py": functions})
    answer = await post(deployment.http, archive, "k", Prefer="wait=60")
    body = answer.json()
    assert answer.status_code == 200
    assert len(answer.content) > RESULT_INLINE_BYTES_MAX
    assert body["result"]["stats"]["calls"]["resolved"] == 3_999
    assert len(calls_in(body["result"])) == 3_999
    (artifact,) = await deployment.engine.artifacts(body["jobId"])
    assert artifact.size > RESULT_INLINE_BYTES_MAX
    events = await deployment.http.get(body["urls"]["events"])
    end = json.loads(events.text.rstrip().splitlines()[-1].removeprefix("data: "))
    assert (end["status"], end["resultUrl"]) == ("completed", body["urls"]["poll"])
    assert "result" not in end


async def test_a_graph_whose_blob_is_gone_is_not_answered_in_half(deployment: Deployment) -> None:
    await deployment.start_graphs_worker()
    functions = "\n".join(f"def f{number}():\n    f{number + 1}()" for number in range(4_000))
    body = await analysed(deployment, zipped({"large.py": functions}))
    (artifact,) = await deployment.engine.artifacts(body["jobId"])
    await deployment.engine.blobs.delete([artifact.blob_key])
    answer = await deployment.http.get(body["urls"]["poll"])
    assert answer.status_code == 503
    assert answer.json()["code"] == "blob_store_unavailable"


async def test_a_job_is_followed_with_its_progress(deployment: Deployment) -> None:
    await deployment.start_graphs_worker()
    answer = await post(deployment.http, ARCHIVE, "k")
    events = await deployment.http.get(answer.json()["urls"]["events"])
    names = [line for line in events.text.splitlines() if line.startswith("event: ")]
    assert names[-1] == "event: end"
    end = json.loads(events.text.rstrip().splitlines()[-1].removeprefix("data: "))
    assert end["status"] == "completed"
    assert end["result"]["stats"]["filesProcessed"] == 3
    assert end["progress"] == {"fraction": 1.0, "note": "3 of 3 files"}


async def test_an_archive_that_only_reading_finds_out_fails_its_job(deployment: Deployment) -> None:
    await deployment.start_graphs_worker()
    broken = bytearray(zipped({"a.py": "x = 1\n" * 100}, method=0))
    at = broken.index(b"x = 1")
    broken[at] ^= 1  # the checksum is not true any more
    body = await analysed(deployment, bytes(broken))
    assert body["status"] == "failed"
    assert body["errorCode"] == "archive_rejected"
    assert isinstance(body["error"], str)
    assert "result" not in body


async def test_the_archive_is_gone_once_the_job_has_ended(
    deployment: Deployment, tmp_path: Path
) -> None:
    await deployment.start_graphs_worker()
    body = await analysed(deployment, ARCHIVE)

    async def receipt() -> dict[str, Any]:
        answer = await deployment.http.get(body["urls"]["receipt"])
        found: dict[str, Any] = answer.json()["receipt"]
        return found

    async def blob_deleted() -> bool:
        layers = (await receipt())["layers"]
        return all(each["deletedAt"] for each in layers if each["layer"] == "blob")

    await eventually_async(blob_deleted, "the archive is deleted")
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []
    mechanisms = {each["layer"]: each["mechanism"] for each in (await receipt())["layers"]}
    assert mechanisms["blob"] == mechanisms["disk"] == "worker"


async def test_a_running_analysis_can_be_cancelled(deployment: Deployment) -> None:
    await deployment.start_graphs_worker()
    deep = "\n".join(f"def f{number}(): return g{number}()" for number in range(20_000))
    archive = zipped({f"m{number}.py": deep for number in range(40)})
    answer = await post(deployment.http, archive, "k")
    poll = answer.json()["urls"]["poll"]

    async def processing() -> bool:
        return bool((await deployment.http.get(poll)).json()["status"] == "processing")

    await eventually_async(processing, "it is being analysed")
    cancelled = await deployment.http.post(answer.json()["urls"]["cancel"])
    assert cancelled.status_code == 202
    assert cancelled.json()["cancelRequested"] is True
    ended = (await deployment.http.get(f"{poll}?wait=60")).json()
    assert (ended["status"], ended["errorCode"]) == ("failed", "cancelled")


async def test_work_is_metered_by_operation(deployment: Deployment) -> None:
    await deployment.start_graphs_worker()
    for operation in ("call", "parse"):
        for _ in range(2):
            await analysed(deployment, ARCHIVE, operation, key=operation)
    usage: httpx2.Response = await deployment.http.get("/api/v1/orgs/default/usage")
    counted = {item["endpoint"]: item["completed"] for item in usage.json()["items"]}
    assert counted == {"graphs.post__call": 1, "graphs.post__parse": 1}
