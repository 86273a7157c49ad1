"""The synchronous client is what the asynchronous one makes of it."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coatcheck.client import (
    AsyncBatch,
    AsyncBatches,
    AsyncClient,
    AsyncJob,
    Batch,
    Batches,
    Client,
    Job,
)
from tests.markdown import REPOSITORY

SCRIPT = Path("scripts", "generate_sync_client")
CLIENT = Path("src", "coatcheck", "client")


def generate(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, repository / SCRIPT, *arguments], capture_output=True, text=True
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """As much of the repository as the script needs."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(REPOSITORY / SCRIPT, tmp_path / SCRIPT)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    shutil.copytree(REPOSITORY / CLIENT, tmp_path / CLIENT)
    return tmp_path


def test_the_committed_client_is_up_to_date() -> None:
    ended = generate(REPOSITORY, "--check")
    assert ended.returncode == 0, ended.stderr


def test_a_change_of_either_is_noticed_and_mended(copy: Path) -> None:
    written, made = (copy / CLIENT / folder / "client.py" for folder in ("_async", "_sync"))
    written.write_text(written.read_text().replace("Read the current", "Read only the current"))
    (copy / CLIENT / "_sync" / "webhooks.py").unlink()
    (copy / CLIENT / "_sync" / "extra.py").write_text("")
    ended = generate(copy, "--check")
    assert ended.returncode == 1
    assert (
        "_sync/client.py, _sync/extra.py, _sync/webhooks.py: not what _async makes" in ended.stderr
    )
    assert generate(copy).returncode == 0
    assert "Read only the current" in made.read_text()
    assert generate(copy, "--check").returncode == 0


@pytest.mark.parametrize(
    ("waits", "blocks"),
    [(AsyncClient, Client), (AsyncJob, Job), (AsyncBatches, Batches), (AsyncBatch, Batch)],
)
def test_both_have_the_same_methods_with_the_same_arguments(waits: type, blocks: type) -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        return {
            name.replace("aclose", "close"): list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert methods(waits) == methods(blocks)
    assert methods(waits)
