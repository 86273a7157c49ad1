"""The blob stores that tests run on: a local folder, an S3 server and an Azure server.

The fixtures `blob_store` and `container` (tests/conftest.py) give a test each of them in turn.
GCS has no server of its own that could run here: its URLs are tested, its requests are not.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

KEEPER = Path(__file__).with_name("store_keeper.py")
KEEPER_POLL_SECONDS = 0.02
KINDS = ("folder", "s3", "azure")
_SCHEMES = {"s3": "s3", "azure": "az"}
_BUCKET = "coatcheck-tests"  # as store_keeper.py makes it


@dataclass(frozen=True)
class BlobStore:
    """A place of a test's own: its URL, and the variables that a process needs to reach it."""

    kind: str
    url: str
    environment: Mapping[str, str] = field(default_factory=dict)


def blob_store_of(kind: str, session_dir: Path, folder: Path) -> BlobStore:
    """A place in the store of a kind that no other test sees; its server is started if need be."""
    if kind == "folder":
        return BlobStore(kind, folder.as_uri())
    return BlobStore(
        kind,
        f"{_SCHEMES[kind]}://{_BUCKET}/some/{secrets.token_hex(8)}",
        _server_environment(kind, session_dir),
    )


def _server_environment(kind: str, session_dir: Path) -> dict[str, str]:
    published = session_dir / f"{kind}.json"
    with (session_dir / f"{kind}.lock").open("w") as start_lock:
        fcntl.flock(start_lock, fcntl.LOCK_EX)
        if not published.exists():
            _start_keeper(kind, session_dir, published)
    environment: dict[str, str] = json.loads(published.read_text())
    return environment


def _start_keeper(kind: str, session_dir: Path, published: Path) -> None:
    log = session_dir / f"{kind}.log"
    with log.open("wb") as output:
        keeper = subprocess.Popen(
            [sys.executable, KEEPER, session_dir, kind],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a Ctrl-C ends the tests first, then the server
        )
    while not published.exists():
        if keeper.poll() is not None:
            raise RuntimeError(f"the tests' {kind} server did not start:\n{log.read_text()}")
        time.sleep(KEEPER_POLL_SECONDS)
