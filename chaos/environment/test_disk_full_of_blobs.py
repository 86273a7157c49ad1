"""The blob folder's disk is full: callers get errors, jobs retry, no partial blob is visible."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from chaos.environment.blob_checks import every_artifact_is_whole, nothing_else_is_kept, sweep
from chaos.environment.disk import SmallDisk, small_disk
from chaos.environment.installation import Installation
from chaos.environment.waiting import until
from coatcheck.blobs import BlobContainer
from tests.products.graphs.archives import post, zipped

DISK_MEBIBYTES = 16
ARTIFACT_BYTES = 30_000
ROOM_BYTES = 4_096
"""Too little for any blob, but enough to begin one."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", DISK_MEBIBYTES) as mounted:
        yield mounted


async def test_a_full_blob_folder_refuses_in_words_and_leaves_no_half_blob(
    dsn: str, disk: SmallDisk, tmp_path: Path
) -> None:
    folder = disk.folder / "blobs"
    blobs = BlobContainer.open(folder.as_uri())
    archive = zipped({"a.py": "x = 1\n", "noise.txt": _noise()})
    async with Installation(
        dsn, tmp_path, COATCHECK_BLOB_URL=folder.as_uri(), COATCHECK_GRAPHS_CONCURRENCY="1"
    ) as installed:
        server = await installed.serve()
        await installed.work()
        installed.callers.start(2, "/attach", size=ARTIFACT_BYTES)
        await installed.ran_more(5)

        disk.fill(leaving=ROOM_BYTES)
        refused = await post(installed.http, archive, "an archive")
        assert refused.status_code == HTTPStatus.SERVICE_UNAVAILABLE, refused.text
        assert refused.json()["code"] == "blob_store_unavailable"
        assert "retry-after" in refused.headers
        await server.says("No space left on device")
        await _some_are_tried_again(installed)
        await every_artifact_is_whole(installed, blobs)

        disk.make_room()
        taken = await post(installed.http, archive, "an archive")
        assert taken.is_success, taken.text
        await installed.callers.stop()
        assert installed.callers.refusals == []  # submitting these needs no blob
        await installed.all_ended()
        states = await installed.sql.fetch("SELECT state::text, count(*) FROM jobs GROUP BY 1")
        assert [state for state, _ in states] == ["completed"], states
        await sweep(installed, blobs)
        artifacts = await every_artifact_is_whole(installed, blobs)
        assert artifacts >= len(installed.callers.acknowledged)
        await nothing_else_is_kept(installed, blobs)
        known = {each["blob_key"] for each in await installed.sql.fetch("TABLE artifacts")}
        files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert files == known, "what an upload left half-way"


async def _some_are_tried_again(installed: Installation) -> None:
    async def look() -> bool:
        return bool(
            await installed.sql.fetchval(
                "SELECT count(*) FROM jobs WHERE error_code = 'target_unreachable'"
            )
        )

    await until(look, "a job that could not store is to be tried again")


def _noise() -> bytes:
    """Incompressible bytes."""
    return secrets.token_bytes(20_000)
