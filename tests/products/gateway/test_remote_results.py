"""What the gateway keeps of what a remote made."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import artifacts_of, job_of
from coatcheck.core.remote.result_store import ResultOf
from coatcheck.core.upstream_calls import decode_answer, shown_result
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.products.gateway.remote import GatewayResultStore
from coatcheck.remotes import RemoteFaulty, RemoteResult

PIECE = b" " * (64 * 1024)


@pytest.fixture
def blobs(tmp_path: Path) -> BlobContainer:
    return BlobContainer.open(tmp_path.as_uri())


@pytest.fixture
def job() -> ResultOf:
    return ResultOf("acme", uuid4(), UPSTREAM_ENDPOINT, "", uuid4(), {})


def result(*pieces: bytes, media_type: str, breaks: bool = False) -> RemoteResult:
    async def come() -> AsyncGenerator[bytes, None]:
        for piece in pieces:
            yield piece
        if breaks:
            raise RemoteFaulty("it broke off")

    return RemoteResult(come(), media_type=media_type, length=None)


async def keys(blobs: BlobContainer) -> list[str]:
    return [key async for page in blobs.keys_under("") for key in page]


@pytest.mark.parametrize(
    ("media_type", "pieces", "shown"),
    [
        ("application/json", [b'{"a": ', b"1.0}"], {"a": 1.0}),
        ("application/vnd.acme+json; charset=utf-8", [b" [1]\n"], [1]),
        ("text/plain; charset=utf-8", ["grüß".encode()], "grüß"),
        ("application/json", [], None),
    ],
)
async def test_short_json_and_text_are_the_result_itself(
    blobs: BlobContainer, job: ResultOf, media_type: str, pieces: list[bytes], shown: object
) -> None:
    kept = await GatewayResultStore().keep(job, result(*pieces, media_type=media_type), blobs)
    assert kept.artifact is None
    assert msgspec.json.decode(shown_result(kept.result)) == shown
    answer = decode_answer(kept.result)
    assert (answer.status, answer.media_type, answer.body()) == (200, media_type, b"".join(pieces))
    assert await keys(blobs) == []


@pytest.mark.parametrize(
    ("media_type", "pieces"),
    [
        ("audio/wav", [b"RIFF", b"\0" * 100]),
        ("application/json", [b"[", *[PIECE] * 16, b"]"]),
        ("audio/wav", []),
    ],
)
async def test_all_else_is_an_artifact_of_the_job(
    blobs: BlobContainer, job: ResultOf, media_type: str, pieces: list[bytes]
) -> None:
    content = b"".join(pieces)
    kept = await GatewayResultStore().keep(job, result(*pieces, media_type=media_type), blobs)
    assert kept.artifact is not None
    assert msgspec.json.decode(shown_result(kept.result)) == {
        "media_type": media_type,
        "bytes": len(content),
        "artifact": kept.artifact.name,
    }
    assert (kept.artifact.size, kept.artifact.sha256) == (
        len(content),
        hashlib.sha256(content).digest(),
    )
    assert job_of(kept.artifact.blob_key) == job.job
    assert kept.artifact.blob_key.startswith(artifacts_of(job.deployment))
    assert await keys(blobs) == [kept.artifact.blob_key]
    assert await blobs.get(kept.artifact.blob_key) == content


async def test_a_media_type_that_nothing_can_have_becomes_that_of_plain_bytes(
    blobs: BlobContainer, job: ResultOf
) -> None:
    kept = await GatewayResultStore().keep(job, result(b"x", media_type="nonsense"), blobs)
    assert kept.artifact is not None
    assert kept.artifact.media_type == "application/octet-stream"


@pytest.mark.parametrize("media_type", ["audio/wav", "application/json"])
async def test_of_a_result_that_breaks_off_nothing_is_kept(
    blobs: BlobContainer, job: ResultOf, media_type: str
) -> None:
    broken = result(*[PIECE] * 17, media_type=media_type, breaks=True)
    with pytest.raises(RemoteFaulty):
        await GatewayResultStore().keep(job, broken, blobs)
    assert await keys(blobs) == []
