"""A handler in a process of its own: what goes in, what comes out, and what it finds there."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from coatcheck.domain.limits import RESULT_BYTES_MAX
from coatcheck.domain.states import Completed, Failed, Outcome, Retryable, Unreachable
from coatcheck.job import Chunk, LogLine, ProgressReport
from coatcheck.worker.executors.isolated import REPORTS_UNDERWAY_MAX, IsolatedExecutor
from tests.waiting import eventually
from tests.worker.attempts import BlockedRecorder, FailingRecorder, Recorder, new_job
from tests.worker.isolated_handlers import service
from tests.worker.isolation import Isolation, is_reaped, result, state


async def test_arguments_go_in_and_the_value_comes_out_of_another_process(
    isolation: Isolation,
) -> None:
    value = result(await isolation.run("echo", content="a", model={"number": 1}))
    assert value["content"] == "a"
    assert value["model"] == {"number": 1}
    assert value["process"] != os.getpid()
    assert is_reaped(value["process"])


async def test_every_attempt_has_a_process_of_its_own(isolation: Isolation) -> None:
    processes = {result(await isolation.run("echo", content="a"))["process"] for _ in range(3)}
    assert len(processes) == 3


async def test_async_handlers_run_there_too(isolation: Isolation) -> None:
    recorder = Recorder()
    job = isolation.job("echo_async", recorder)
    value = result(await isolation.run("echo_async", recorder, job, content="a"))
    assert value == {"content": "a", "id": job.id}
    assert recorder.reports == [ProgressReport(0.5, "halfway")]


def test_it_works_on_uvloop_as_well(tmp_path: Path) -> None:
    async def main() -> Outcome:
        isolation = Isolation(tmp_path / "temp")
        with isolation.temp_root:
            recorder = Recorder()
            outcome = await isolation.run("print", recorder)
            assert len(recorder.of(LogLine)) == 4
            running = await isolation.start("wait")
            running.task.cancel()
            await asyncio.wait([running.task])
            assert running.task.cancelled()
            assert is_reaped(running.said["process"])
            return outcome

    assert uvloop.run(main()) == Completed(b"null")


async def test_invalid_input_fails_the_job(isolation: Isolation) -> None:
    assert await isolation.run("echo", model={"number": "x"}) == Failed(
        "invalid_input",
        "content: missing; model.number: input should be a valid integer, unable to parse string"
        " as an integer",
    )


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("fail", Failed("refused", "no")),
        ("retry", Retryable("retry_later", "busy", 5.0)),
        ("unreachable", Unreachable("away", 2.0)),
        ("raise", Retryable("handler_error", "LookupError: where is it?")),
        ("exit", Retryable("handler_error", "SystemExit: 3")),
    ],
)
async def test_each_end_has_the_same_outcome_as_elsewhere(
    isolation: Isolation, how: str, outcome: Outcome
) -> None:
    assert await isolation.run("end", how=how) == outcome


async def test_results_have_the_same_bounds_as_elsewhere(isolation: Isolation) -> None:
    large = await isolation.run("end", how="large")
    assert isinstance(large, Completed)
    assert len(large.result) == RESULT_BYTES_MAX
    for how, code in (("too large", "result_too_large"), ("opaque", "result_not_json")):
        outcome = await isolation.run("end", how=how)
        assert isinstance(outcome, Failed)
        assert outcome.code == code


async def test_where_the_handler_broke_is_in_the_workers_log_without_the_payload(
    isolation: Isolation, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        recorder = Recorder()
        await isolation.run("raise_secret", recorder, content="canary-7f3")
    assert "in raise_secret" in caplog.text
    assert "builtins.LookupError" in caplog.text
    assert "canary-7f3" not in caplog.text
    assert recorder.reports == []


async def test_the_surroundings_are_private(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COATCHECK_DATABASE_URL", "postgresql://user:password@host/database")
    monkeypatch.setenv("DATABASE_URL", "postgresql://user:password@host/database")
    monkeypatch.setenv("SOME_TOKEN", "secret")
    monkeypatch.setenv("TZ", "UTC")
    recorder = Recorder()
    job = isolation.job("surroundings", recorder)
    found = result(await isolation.run("surroundings", recorder, job))
    environment = found["environment"]
    assert not [name for name in environment if name.startswith("COATCHECK_")]
    assert "DATABASE_URL" not in environment
    assert "SOME_TOKEN" not in environment
    assert "password" not in str(environment)
    assert environment["TZ"] == "UTC"
    folder = found["folder"]
    assert Path(folder).parent == isolation.temp_root.directory
    assert folder == found["working_folder"] == environment["TMPDIR"]
    assert Path(found["temporary"]).parent == Path(folder)
    assert found["mode"] == 0o700
    assert found["session"] == found["group"] == found["process"]
    assert found["parent"] == os.getpid()
    assert found["core"] == [0, 0]
    # The three streams, the socket, and the one that lists them.
    assert len(found["descriptors"]) == 5
    assert found["job"] == [job.id, "acme", job.endpoint, "standard", 1, "request-1"]


LOOKED_INTO = """
import asyncio, sys
from pathlib import Path
from coatcheck.process_access import close_to_others
from tests.worker.isolation import Isolation, result
close_to_others()
async def main():
    isolation = Isolation(Path(sys.argv[1]))
    print(result(await isolation.run("look_into_the_worker")))
    isolation.temp_root.close()
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
def test_the_memory_the_environment_and_the_files_of_the_worker_are_out_of_reach(
    tmp_path: Path,
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LOOKED_INTO, str(tmp_path / "temp")],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": ":".join(sys.path),
            "COATCHECK_DATABASE_URL": "postgresql://user:password@host/database",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "password" not in ran.stdout
    assert ast.literal_eval(ran.stdout) == {
        **dict.fromkeys(("environ", "mem", "maps", "fd/0", "cwd"), "PermissionError"),
        "program": "b''",
        "ptrace": "-1",
    }


async def test_variables_are_passed_if_asked_for_but_never_the_workers_own(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    executor = IsolatedExecutor(isolation.temp_root, passed_variables=["SOME_TOKEN"])
    endpoint = service.endpoints["post__surroundings"]
    found = result(await executor.run(endpoint, new_job(endpoint, Recorder()), b"{}"))
    assert found["environment"]["SOME_TOKEN"] == "secret"
    with pytest.raises(ValueError, match="COATCHECK_DATABASE_URL"):
        IsolatedExecutor(isolation.temp_root, passed_variables=["COATCHECK_DATABASE_URL"])


async def test_reports_arrive_in_order_and_attachments_with_their_bytes(
    isolation: Isolation, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_bytes(b"three")
    recorder = Recorder()
    assert await isolation.run("report", recorder, outside=str(outside)) == Completed(b"null")
    assert recorder.reports[:5] == [
        ProgressReport(0.25, "begun"),
        LogLine("a line", "warning", {"pages": [1, 2]}),
        Chunk("text", b"text"),
        Chunk("binary", b"\xff\x00"),
        Chunk("json", b'{"number":1}'),
    ]
    assert recorder.attached == {
        "bytes": b"one",
        "inside": b"two",
        "outside": b"three",
        "file": b"four",
    }
    assert outside.read_bytes() == b"three"


@pytest.mark.parametrize("path", ["../../../../../../../etc/passwd", "/etc/passwd", "", "."])
async def test_a_path_that_leads_out_of_the_folder_is_not_attached(
    isolation: Isolation, path: str
) -> None:
    recorder = Recorder()
    outcome = await isolation.run("attach_by_its_own_words", recorder, path=path)
    assert isinstance(outcome, Retryable)
    assert recorder.attached == {}


@pytest.mark.parametrize("path", ["link", "folder/link"])
async def test_a_link_is_not_attached_whatever_it_points_to(
    isolation: Isolation, path: str
) -> None:
    recorder = Recorder()
    outcome = await isolation.run(
        "attach_by_its_own_words", recorder, path=path, link="/proc/self/environ"
    )
    assert isinstance(outcome, Retryable)
    assert recorder.attached == {}


async def test_a_handler_that_leaves_links_for_its_folders_changes_nothing_elsewhere(
    isolation: Isolation, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    (victim / "closed").mkdir(parents=True)
    (victim / "closed").chmod(0o510)
    victim.chmod(0o555)
    assert await isolation.run("become_a_link", victim=str(victim)) == Completed(b"null")
    assert victim.stat().st_mode & 0o777 == 0o555
    assert (victim / "closed").stat().st_mode & 0o777 == 0o510


async def test_threads_of_the_handler_can_report_at_the_same_time(isolation: Isolation) -> None:
    recorder = Recorder()
    assert await isolation.run("report_from_threads", recorder) == Completed(b"null")
    for number in range(4):
        mine = [m for m in (r.message for r in recorder.of(LogLine)) if m.startswith(f"{number} ")]
        assert mine == [f"{number} {step}" for step in range(20)]
    assert len(recorder.attached) == 80


async def test_a_handler_that_reports_faster_than_can_be_stored_has_to_wait(
    isolation: Isolation,
) -> None:
    recorder = BlockedRecorder()
    lines = 2_000  # far more than the socket between the two holds
    task = asyncio.create_task(isolation.run("flood", recorder, lines=lines))
    process = json.loads((await recorder.first(Chunk)).data)["process"]
    await recorder.until(REPORTS_UNDERWAY_MAX + 1)
    await asyncio.to_thread(
        eventually, lambda: state(process) == "S", "the process waits for room in its socket"
    )
    assert len(recorder.reports) == REPORTS_UNDERWAY_MAX + 1
    recorder.room.set()
    assert await task == Completed(b"null")
    assert [r.message.split()[0] for r in recorder.of(LogLine)] == [str(n) for n in range(lines)]


async def test_a_failure_to_store_a_report_ends_the_attempt(
    isolation: Isolation, tmp_path: Path
) -> None:
    outcome = await isolation.run("report", FailingRecorder(), outside=str(tmp_path))
    assert outcome == Retryable("handler_error", "OSError: the disk is full")


async def test_what_is_printed_goes_to_the_jobs_log(isolation: Isolation) -> None:
    recorder = Recorder()
    await isolation.run("print", recorder)
    lines = recorder.of(LogLine)
    assert [line for line in lines if line.fields["stream"] == "stderr"] == [
        LogLine("on stderr", "warning", {"stream": "stderr"})
    ]
    assert [line.message for line in lines if line.fields["stream"] == "stdout"] == [
        "on stdout",
        "from a program",
        "without an end",
    ]


async def test_threads_left_behind_do_not_hold_the_job_up(isolation: Isolation) -> None:
    assert result(await isolation.run("leave_threads")) == "returned"


async def test_only_the_first_of_two_forks_answers(isolation: Isolation) -> None:
    assert result(await isolation.run("fork")) == "from the first"


MODULE = """
from coatcheck.service import Service
service = Service("vanishing")
@service.post("/run", isolated=True)
def run() -> str:
    return "found"
"""


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (Path.unlink, "ModuleNotFoundError"),
        (lambda path: path.write_text("x = 1"), "AttributeError"),
    ],
)
async def test_a_handler_that_the_process_cannot_find_is_retried_and_named(
    isolation: Isolation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], object],
    error: str,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = f"vanishing_{error.lower()}"
    path = tmp_path / f"{name}.py"
    path.write_text(MODULE)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    endpoint = importlib.import_module(name).service.endpoints["post__run"]
    job = new_job(endpoint, Recorder())
    assert result(await isolation.executor.run(endpoint, job, b"{}")) == "found"
    for cached in (tmp_path / "__pycache__").glob(f"{name}.*"):
        cached.unlink()
    spoil(path)
    assert await isolation.executor.run(endpoint, job, b"{}") == Retryable(
        "handler_not_importable", f"{name}:run could not be imported: {error}"
    )


async def test_a_process_that_cannot_be_started_is_retried(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/absent/python")
    assert await isolation.run("echo", content="a") == Retryable(
        "child_not_started",
        "the handler's process could not be started: No such file or directory",
    )
