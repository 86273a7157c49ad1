"""From COATCHECK_BLOB_URL and the variables of each store to a container, or to a clear error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from obstore.store import AzureStore, GCSStore, LocalStore, S3Store

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.container import BlobRetryPolicy, OpenStore, open_store
from coatcheck.domain.errors import SettingsInvalid
from tests.blobs import azure_requests
from tests.blobs.stores import BlobStore


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "AZURITE_", "GOOGLE_")):
            monkeypatch.delenv(name)


def opened(url: str) -> OpenStore:
    return open_store(url, BlobRetryPolicy())


def test_each_scheme_opens_its_store_at_its_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    assert isinstance(opened(tmp_path.as_uri()).store, LocalStore)
    for url, kind in {
        "s3://bucket/some/prefix": S3Store,
        "az://container/some/prefix": AzureStore,
        "abfs://container/some/prefix": AzureStore,
        "abfss://container@account.dfs.core.windows.net/some/prefix": AzureStore,
        "gs://bucket/some/prefix": GCSStore,
    }.items():
        both = opened(url)
        for store in (both.store, both.deleting):
            assert isinstance(store, kind)
            assert store.prefix == "some/prefix"
        assert both.folder is None


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "gs://bucket", "gs://bucket/"])
def test_a_bucket_needs_no_prefix(url: str) -> None:
    assert opened(url).store is not None


def test_an_azure_url_without_an_account_says_which_variable_is_missing() -> None:
    with pytest.raises(SettingsInvalid, match="AZURE_STORAGE_ACCOUNT_NAME") as refused:
        BlobContainer.open("az://the-container/prefix")
    assert "the-container" not in str(refused.value)


def test_a_google_key_file_that_cannot_be_read_says_which_variable_to_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "no-such-key.json"))
    with pytest.raises(SettingsInvalid, match="GOOGLE_SERVICE_ACCOUNT"):
        BlobContainer.open("gs://bucket/prefix")


async def expect_usable(url: str) -> None:
    container = BlobContainer.open(url)
    await container.put_whole("a/b", b"x")
    assert await container.get("a/b") == b"x"
    assert [key async for page in container.keys_under("a") for key in page] == ["a/b"]


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"])
@pytest.mark.parametrize("blob_store", ["s3"], indirect=True)
async def test_any_of_the_usual_variables_leads_to_a_server_that_speaks_s3(
    blob_store: BlobStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable, value in blob_store.environment.items():
        monkeypatch.setenv(name if variable == "AWS_ENDPOINT_URL" else variable, value)
    await expect_usable(blob_store.url)


@pytest.mark.parametrize("name", ["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"])
@pytest.mark.parametrize("blob_store", ["azure"], indirect=True)
async def test_an_azure_account_can_have_an_endpoint_of_its_own(
    blob_store: BlobStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    server = blob_store.environment["AZURITE_BLOB_STORAGE_URL"]
    monkeypatch.setenv(name, f"{server}/{azure_requests.ACCOUNT}")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", azure_requests.ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", azure_requests.KEY)
    await expect_usable(blob_store.url)


@pytest.mark.parametrize("blob_store", ["s3", "azure"], indirect=True)
async def test_a_slash_at_the_end_of_a_prefix_changes_nothing(
    blob_store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in blob_store.environment.items():
        monkeypatch.setenv(variable, value)
    await BlobContainer.open(f"{blob_store.url}/").put_whole("a/b", b"x")
    assert await BlobContainer.open(blob_store.url).get("a/b") == b"x"


async def test_only_a_server_whose_variable_says_http_is_spoken_to_without_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert "allow_http" not in (opened("s3://bucket").store.client_options or {})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert (opened("s3://bucket").store.client_options or {})["allow_http"] in (True, "true")
