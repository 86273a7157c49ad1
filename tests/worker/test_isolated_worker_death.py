"""A worker killed with kill -9: its jobs' processes die, and the next sweep removes the rest."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck.worker.temp_dirs import TempRoot
from tests.worker.isolation import is_alive, wait_until_dead

WORKER = """
import asyncio, json, sys
from pathlib import Path
from tests.worker.isolation import Isolation

async def main(root, handler, arguments):
    isolation = Isolation(Path(root))
    running = await isolation.start(handler, **json.loads(arguments))
    said = running.said | {"boot": isolation.temp_root.directory.name}
    print(json.dumps(said), flush=True)
    await running.task

asyncio.run(main(*sys.argv[1:]))
"""


class Worker:
    """A process with an isolated job under way."""

    def __init__(self, root: Path, handler: str, **arguments: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(root), handler, json.dumps(arguments)],
            env={"PYTHONPATH": ":".join(sys.path)},
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.said = json.loads(line)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "temp"


@pytest.fixture
def sibling(root: Path) -> Iterator[TempRoot]:
    """The temp root of another worker on the same machine."""
    with TempRoot(root) as temp_root:
        yield temp_root


@pytest.mark.crash
def test_the_process_dies_with_its_worker_and_a_sweep_removes_its_folder(
    root: Path, sibling: TempRoot
) -> None:
    worker = Worker(root, "wait")
    folder = Path(worker.said["folder"])
    assert (folder / "secret").read_text() == "customer data"
    assert sibling.sweep() == []
    assert folder.exists()
    worker.kill()
    wait_until_dead(worker.said["process"])
    assert folder.exists()
    assert sibling.sweep() == [worker.said["boot"]]
    assert not folder.exists()
    assert sorted(path.name for path in root.iterdir()) == [
        sibling.directory.name,
        f"{sibling.directory.name}.lock",
    ]


@pytest.mark.crash
def test_what_the_process_had_started_dies_with_the_sweep(root: Path, sibling: TempRoot) -> None:
    worker = Worker(root, "family", then="wait")
    family = worker.said["family"]
    worker.kill()
    wait_until_dead(worker.said["process"])
    assert all(is_alive(process) for process in family)
    assert sibling.sweep() == [worker.said["boot"]]
    for process in family:
        wait_until_dead(process)


@pytest.mark.crash
def test_the_next_boot_sweeps_as_well_as_a_sibling(root: Path) -> None:
    worker = Worker(root, "wait")
    worker.kill()
    with TempRoot(root) as next_boot:
        assert next_boot.sweep() == [worker.said["boot"]]
    assert list(root.iterdir()) == []
