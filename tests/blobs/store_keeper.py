"""Keeps one blob server for a test session: S3 by moto, or Azure Blob by Azurite.

Run as a program by whichever test first needs it: `store_keeper.py SESSION_DIR s3|azure`. It starts
the server on a free port of this machine, makes one bucket or container, writes
`SESSION_DIR/<kind>.json`, and ends the server with the session, as postgres_keeper.py does.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import boto3
import httpx2
from moto.server import ThreadedMotoServer

from tests.blobs.azure_requests import create_container
from tests.ports import free_port
from tests.postgres_keeper import wait_for_the_end_of
from tests.waiting import eventually

BUCKET = "coatcheck-tests"
REGION = "us-east-1"
AZURITE = (
    Path(__file__).parents[1] / "azurite" / "node_modules" / "azurite" / "dist/src/blob/main.js"
)


class KeeperError(Exception):
    """The server cannot be had."""


def main(session_dir: Path, kind: str) -> None:
    with SERVERS[kind]() as environment:
        partial = session_dir / f"{kind}.json.partial"
        partial.write_text(json.dumps(environment))
        partial.rename(session_dir / f"{kind}.json")
        wait_for_the_end_of(session_dir)
    if not (session_dir / "keeper.lock").exists():  # or PostgreSQL's keeper will remove it
        shutil.rmtree(session_dir, ignore_errors=True)


@contextlib.contextmanager
def s3() -> Iterator[dict[str, str]]:
    """A moto server; the variables that lead an S3 client to it."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "no-secret",
        "AWS_REGION": REGION,
    }
    boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=REGION,
    ).create_bucket(Bucket=BUCKET)
    try:
        yield environment
    finally:
        server.stop()


@contextlib.contextmanager
def azure() -> Iterator[dict[str, str]]:
    """An Azurite server on a folder of its own; the variables that lead an Azure client to it."""
    if not AZURITE.is_file():
        raise KeeperError("Azurite is not installed: run `make azurite`")
    folder = tempfile.mkdtemp(prefix="coatcheck-azurite-")
    port = free_port()
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", folder]
    options += ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    server = subprocess.Popen(["node", AZURITE, *options], stdin=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: answers(server, url), "Azurite answers")
        create_container(url, BUCKET)
        yield {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url}
    finally:
        server.kill()  # its data ends with it
        server.wait()
        shutil.rmtree(folder)


SERVERS = {"s3": s3, "azure": azure}


def answers(server: subprocess.Popen[bytes], url: str) -> bool:
    if server.poll() is not None:
        raise KeeperError(f"Azurite ended with {server.returncode}")
    with contextlib.suppress(httpx2.TransportError):
        httpx2.get(url)
        return True
    return False


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main(Path(sys.argv[1]), sys.argv[2])
