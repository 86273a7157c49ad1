"""A file that is too slow, too hungry or deadly fails alone; a dead analysis leaves nothing."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from coatcheck.domain.states import Failed, Retryable
from coatcheck.job import ProgressReport
from coatcheck.products.graphs import analysis
from coatcheck.products.graphs.executor import NICENESS_MAX, CoreShares, Share
from coatcheck.worker.executors.outcomes import outcome_of_error
from coatcheck.worker.temp_dirs import TempRoot
from tests.products.graphs.analysing import (
    MOMENT,
    Analyst,
    one_large_file,
    packed,
    python_files,
)
from tests.waiting import eventually_async
from tests.worker.attempts import Recorder, new_job
from tests.worker.isolation import is_alive, wait_until_dead

SMALL = python_files(40)
FILES = 2_000


@pytest.fixture
def analyst(tmp_path: Path) -> Iterator[Analyst]:
    """At the end nothing is left of any analysis."""
    root = tmp_path / "temp"
    analyst = Analyst(root)
    yield analyst
    assert list(analyst.temp_root.directory.iterdir()) == []
    analyst.temp_root.close()
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("parsers", [1, 2])
async def test_a_file_that_takes_too_long_fails_alone(analyst: Analyst, parsers: int) -> None:
    files = SMALL | {"slow.py": one_large_file()}
    analysed = await analyst.run(packed(files), file_seconds=0.05, parsers=parsers)
    assert analysed.stats["filesFailedByReason"] == {"timeout": 1}
    assert analysed.paths == set(SMALL)


@pytest.mark.parametrize("parsers", [1, 2])
async def test_a_file_that_takes_too_much_memory_fails_alone(
    analyst: Analyst, parsers: int
) -> None:
    files = SMALL | {"hungry.py": one_large_file()}
    analysed = await analyst.run(packed(files), memory_mb=64, parsers=parsers)
    assert analysed.stats["filesFailedByReason"] == {"memory": 1}
    assert analysed.paths == set(SMALL)


async def test_many_bad_files_do_not_stop_the_others(analyst: Analyst) -> None:
    slow = {f"slow{at}.py": one_large_file() for at in range(8)}
    analysed = await analyst.run(packed(SMALL | slow), file_seconds=0.02)
    assert analysed.stats["filesFailedByReason"] == {"timeout": 8}
    assert analysed.paths == set(SMALL)


@pytest.mark.crash
async def test_a_parser_that_dies_loses_the_file_that_it_was_at_and_no_other(
    analyst: Analyst,
) -> None:
    files = {f"f{at}.py": one_large_file(800) for at in range(10)}
    running = await analyst.start(packed(files), parsers=1)
    (parser,) = await running.parsers(1)
    parser.send_signal(signal.SIGSEGV)
    analysed = await running.task
    assert analysed.stats["filesFailedByReason"] == {"crash": 1}
    assert len(analysed.paths) == 9
    assert analysed.paths < set(files)


@pytest.mark.crash
async def test_a_parser_that_stands_still_is_given_up(analyst: Analyst) -> None:
    """Its limit is on CPU time, of which it uses none."""
    files = {f"f{at}.py": one_large_file(800) for at in range(10)}
    running = await analyst.start(packed(files), parsers=1, file_wall_seconds=4.0)
    (parser,) = await running.parsers(1)
    parser.suspend()
    analysed = await running.task
    assert analysed.stats["filesFailedByReason"] == {"timeout": 1}
    assert len(analysed.paths) == 9
    assert not is_alive(parser.pid)


ANSWERED_UNHEARD = """
import select, sys
from collections import deque
from coatcheck.archives import ArchiveReader
from coatcheck.products.graphs.parser_process import ParserLimits
from coatcheck.products.graphs.parser_wire import Work
from coatcheck.products.graphs.parsers import ParserPool

limits = ParserLimits(20, 80, 2**20, 256)
with ArchiveReader(sys.argv[1]) as reader, ParserPool(reader, 1, limits) as pool:
    pool._add()
    (parser,) = pool._parsers
    parser.give(Work(0))
    select.select([parser.socket], [], [])
    parser.since -= 81
    (done,) = pool._replace_overdue(deque())
    print(type(done.answer).__name__)
"""


def test_an_answer_that_nobody_has_heard_yet_counts_however_late_it_is(tmp_path: Path) -> None:
    archive = tmp_path / "archive.zip"
    archive.write_bytes(packed({"small.py": "x = 1\n"}))
    said = subprocess.run(
        [sys.executable, "-c", ANSWERED_UNHEARD, str(archive)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert said.stdout == b"ParsedFiles\n"


@pytest.mark.crash
async def test_kill_9_of_the_analysis_leaves_no_process_and_no_file(analyst: Analyst) -> None:
    running = await analyst.start(packed({f"f{at}.py": one_large_file() for at in range(20)}))
    parsers = await running.parsers(2)
    running.process.kill()
    analysed = await running.task
    assert isinstance(analysed.outcome, Retryable)
    assert analysed.outcome.code == "child_killed"
    for parser in parsers:
        wait_until_dead(parser.pid)
    # The fixture looks at the folder.


WORKER = """
import asyncio, json, sys
from pathlib import Path
from tests.products.graphs.analysing import Analyst, one_large_file, packed

async def main(root):
    analyst = Analyst(Path(root))
    running = await analyst.start(packed({f"f{at}.py": one_large_file() for at in range(20)}))
    parsers = await running.parsers(2)
    pids = [running.process.pid, *(parser.pid for parser in parsers)]
    print(json.dumps({"pids": pids, "boot": analyst.temp_root.directory.name}), flush=True)
    await running.task

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.crash
def test_kill_9_of_the_worker_ends_all_processes_and_a_sweep_removes_the_archive(
    tmp_path: Path,
) -> None:
    root = tmp_path / "temp"
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, str(root)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    ) as worker:
        assert worker.stdout is not None
        said = json.loads(worker.stdout.readline())
        assert list(root.glob(f"{said['boot']}/*/archive.zip"))
        worker.kill()
    for pid in said["pids"]:
        wait_until_dead(pid)
    with TempRoot(root) as next_boot:
        assert next_boot.sweep() == [said["boot"]]
    assert list(root.iterdir()) == []


async def test_all_parsers_have_work(analyst: Analyst) -> None:
    running = await analyst.start(packed({f"f{at}.py": one_large_file() for at in range(20)}))
    parsers = await running.parsers(2)

    async def all_worked() -> bool:
        return all(parser.cpu_times().user > 0.2 for parser in parsers)

    await eventually_async(all_worked, "both parsers have used the CPU")
    running.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.task


async def test_parsers_can_neither_write_files_nor_reach_the_worker(analyst: Analyst) -> None:
    running = await analyst.start(packed({f"f{at}.py": one_large_file() for at in range(20)}))
    for parser in await running.parsers(2):

        async def confined(process: psutil.Process = parser) -> bool:
            return process.rlimit(psutil.RLIMIT_FSIZE) == (0, 0)

        await eventually_async(confined, "the parser may not write")
        assert parser.rlimit(psutil.RLIMIT_CORE) == (0, 0)
        assert [Path(file.path).name for file in parser.open_files()] == ["archive.zip"]
        sockets = [
            link
            for descriptor in Path(f"/proc/{parser.pid}/fd").iterdir()
            if (link := str(descriptor.readlink())).startswith("socket:")
        ]
        assert len(sockets) == 1
    running.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.task


async def test_a_graph_that_needs_too_much_memory_fails_for_good(tmp_path: Path) -> None:
    analyst = Analyst(tmp_path / "temp", memory_mb=72)
    analysed = await analyst.run(packed(python_files(800, functions=60)))
    analyst.temp_root.close()
    assert isinstance(analysed.outcome, Failed)
    assert analysed.outcome.code == "graph_too_large"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (KeyError("canary"), Retryable("handler_error", "AnalysisBroken: KeyError")),
        (
            OSError(errno.ENOSPC, "canary", "/canary"),
            Retryable(
                "disk_unavailable",
                "the graph could not be written to disk: No space left on device",
            ),
        ),
    ],
)
def test_what_an_error_says_is_not_passed_on(
    analyst: Analyst, monkeypatch: pytest.MonkeyPatch, error: Exception, outcome: Retryable
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(analysis, "resolve", broken)
    archive = analyst.temp_root.directory / "archive.zip"
    archive.write_bytes(packed(SMALL))
    order = analysis.AnalysisOrder("call", MOMENT, str(archive))
    with pytest.raises(Exception) as raised:  # noqa: PT011 - which one is what is compared
        analysis.analyse(new_job(analyst.endpoint, Recorder()), order)
    archive.unlink()
    assert outcome_of_error(raised.value) == outcome


@pytest.mark.slow
async def test_memory_does_not_grow_with_the_bytes_of_the_archive(analyst: Analyst) -> None:
    """2,000 files, without and with 60 MiB of comments: the same graph, the same memory."""
    plain = python_files(FILES, functions=1)
    # Random, so that the archive grows, too, and is taken for no bomb.
    padded = {
        name: f"{source!s}# {random.Random(name).randbytes(16_000).hex()}\n"
        for name, source in plain.items()
    }
    peaks = [await _peak(analyst, packed(files)) for files in (plain, padded)]
    assert sum(map(len, padded.values())) > 60 * 1024 * 1024
    assert peaks[1] < peaks[0] * 1.3
    assert peaks[1] < 400 * 1024 * 1024


async def _peak(analyst: Analyst, archive: bytes) -> int:
    """The largest resident size of the analysis, its parsers not counted, in bytes."""
    running = await analyst.start(archive)
    status = Path(f"/proc/{running.process.pid}/status")
    peak = 0
    while not running.task.done():
        try:
            found = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        except (FileNotFoundError, ProcessLookupError):
            break
        peak = max([peak, *(int(line.split()[1]) * 1024 for line in found)])
        await asyncio.wait([running.task], timeout=0.05)
    analysed = await running.task
    assert analysed.stats["filesProcessed"] == FILES
    assert analysed.recorder.of(ProgressReport)[-1].fraction == 1.0
    return peak


async def test_parsers_have_the_priority_that_their_analysis_was_given(analyst: Analyst) -> None:
    files = {f"f{at}.py": one_large_file(800) for at in range(10)}
    before = psutil.Process().nice()
    running = await analyst.start(packed(files), parsers=1, niceness=3)
    (parser,) = await running.parsers(1)
    assert (running.process.nice(), parser.nice()) == (before + 3, before + 3)
    assert len((await running.task).paths) == 10


def test_all_analyses_share_the_cores_and_each_has_one_at_least() -> None:
    shares = CoreShares(2)
    with ExitStack() as under_way:
        taken = [under_way.enter_context(shares.allocate("acme")) for _ in range(4)]
        assert [share.parsers for share in taken] == [2, 1, 1, 1]
        priorities = [share.niceness for share in taken]
        assert priorities == sorted(priorities)
        assert priorities[0] < priorities[-1] <= NICENESS_MAX
        # Whoever has none under way gets one, before all of the others'.
        other = under_way.enter_context(shares.allocate("bystander"))
        assert other == Share(parsers=1, niceness=0)
    with shares.allocate("acme") as alone:
        assert alone.parsers == 2


def test_the_work_of_an_organisation_weighs_little_more_than_one_process_of_anothers() -> None:
    shares = CoreShares(2)
    with ExitStack() as under_way:
        taken = [under_way.enter_context(shares.allocate("acme")) for _ in range(3)]
        weight = sum(share.parsers / share.slower for share in taken)
    assert weight < 2
