"""Signed URLs: used with plain HTTP, by somebody who has nothing else."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from coatcheck.blobs import BlobContainer, UrlSigner
from coatcheck.blobs.signing import BLOBS_PATH, Grants
from coatcheck.domain.limits import LIST_BYTES_MAX, SIGNED_URL_SECONDS_MAX
from tests.blobs import azure_requests

GRANTS = Grants("a pepper that is only ever used in tests")
KEY = "exports/0a/01K/01K/01K"
LARGE = os.urandom(6 * 1024 * 1024)

on_servers = pytest.mark.parametrize("blob_store", ["s3", "azure"], indirect=True)
in_a_folder = pytest.mark.parametrize("blob_store", ["folder"], indirect=True)


@pytest.fixture
def signer(container: BlobContainer) -> UrlSigner:
    return UrlSigner(container, GRANTS)


@on_servers
@pytest.mark.parametrize("content", [b"", b"small", LARGE], ids=["empty", "small", "large"])
async def test_what_was_put_is_fetched_from_the_store_itself(
    signer: UrlSigner, container: BlobContainer, content: bytes
) -> None:
    await container.put(KEY, content, media_type="application/zip", file_name="ä.zip")
    signed = await signer.signed_get(KEY, 600)
    assert (signed.method, signed.headers) == ("GET", {})
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.get(signed.url)
    assert (answer.status_code, answer.content) == (200, content)
    assert answer.headers["Content-Type"] == "application/zip"
    assert answer.headers["Content-Disposition"].startswith("attachment; filename=")


@on_servers
async def test_a_list_is_put_to_the_store_itself_with_the_headers_that_are_said(
    signer: UrlSigner, container: BlobContainer
) -> None:
    signed = await signer.signed_put(KEY, 600, "application/x-ndjson")
    assert signed.method == "PUT"
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.put(signed.url, content=LARGE, headers=dict(signed.headers))
    assert answer.is_success, answer.text
    assert await container.get(KEY) == LARGE


@pytest.mark.parametrize("blob_store", ["azure"], indirect=True)
async def test_a_store_that_checks_refuses_another_method_and_another_blob(
    signer: UrlSigner, container: BlobContainer
) -> None:
    """moto, our S3 server, looks at no signature."""
    await container.put_whole("a/one", b"one")
    await container.put_whole("a/two", b"two")
    signed = await signer.signed_get("a/one", 600)
    async with httpx2.AsyncClient(trust_env=False) as client:
        assert (await client.get(signed.url)).content == b"one"
        assert (await client.get(signed.url.replace("a/one", "a/two"))).status_code == 403
        put = await client.put(signed.url, content=b"x", headers=container.upload_headers)
        assert put.status_code == 403
    assert await container.get("a/one") == b"one"


@in_a_folder
async def test_a_folders_urls_are_the_control_planes(signer: UrlSigner) -> None:
    get = await signer.signed_get(KEY, 600, file_name="ä.zip", media_type="application/zip")
    put = await signer.signed_put(KEY, 600, "application/x-ndjson")
    assert put.headers == {"Content-Type": "application/x-ndjson"}
    now = datetime.now(UTC)
    granted = GRANTS.read(get.url.removeprefix(BLOBS_PATH), "GET", now)
    assert (granted.key, granted.file_name, granted.media_type) == (KEY, "ä.zip", "application/zip")
    assert granted.expires == get.expires_at.timestamp()
    granted = GRANTS.read(put.url.removeprefix(BLOBS_PATH), "PUT", now)
    assert (granted.key, granted.bytes_max) == (KEY, LIST_BYTES_MAX)


async def test_a_url_says_until_when_it_is_good(signer: UrlSigner) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    for signed in (
        await signer.signed_get(KEY, 600),
        await signer.signed_put(KEY, 600, "text/plain"),
    ):
        assert before < signed.expires_at - timedelta(seconds=600) <= datetime.now(UTC)


@pytest.mark.parametrize("seconds", [0, -1, SIGNED_URL_SECONDS_MAX + 1])
async def test_no_url_is_good_for_longer_than_any_store_would_have_it(
    signer: UrlSigner, seconds: int
) -> None:
    with pytest.raises(ValueError, match="1 to"):
        await signer.signed_get(KEY, seconds)


async def test_a_store_whose_credential_cannot_sign_is_served_by_the_control_plane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", azure_requests.ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2023-11-03&sp=r&sig=x")
    container = BlobContainer.open("az://container/prefix")
    signed = await UrlSigner(container, GRANTS).signed_put(KEY, 600, "text/plain")
    assert signed.url.startswith(BLOBS_PATH)
    assert signed.headers == {"Content-Type": "text/plain"}


async def test_a_google_key_signs_urls_of_its_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    account = {
        "type": "service_account",
        "private_key": private.decode(),
        "private_key_id": "1",
        "client_email": "tests@example.invalid",
    }
    (tmp_path / "key.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "key.json"))
    container = BlobContainer.open("gs://the-bucket/prefix")
    signed = await UrlSigner(container, GRANTS).signed_put("a/b", 600, "text/plain")
    url = httpx2.URL(signed.url)
    assert url.path == "/the-bucket/prefix/a/b"
    assert url.params["X-Goog-Expires"] == "600"
    assert url.params["X-Goog-SignedHeaders"] == "host"  # so that any Content-Type may be sent
