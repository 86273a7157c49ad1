"""The commands of the guides to HTTP, run by a shell as they stand there, on a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import pytest

from tests.e2e.conftest import Served, Up
from tests.markdown import pages
from tests.waiting import LIMIT_SECONDS

DOCUMENTED_URL = "http://127.0.0.1:8080"
DOCUMENTED_DATA = ".coatcheck"


def commands(guide: str) -> list[str]:
    (page,) = [page for page in pages("docs") if page.path.stem == guide]
    return [block.text for block in page.blocks("sh")]


def answers(up: Up | Served, folder: Path, steps: list[str]) -> list[str]:
    """What each step prints."""
    script = "\necho ----\n".join(["set -euo pipefail\n" + steps[0], *steps[1:]])
    script = script.replace(DOCUMENTED_URL, f"http://127.0.0.1:{up.port}")
    script = script.replace(DOCUMENTED_DATA, str(up.data))
    # One answer a line.
    script = script.replace("curl -s ", "curl -sw '\\n' ")
    beside = str(Path(sys.executable).parent)
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=os.environ | {"PATH": f"{beside}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.split("----\n")


@pytest.mark.slow
def test_every_command_of_the_guide_to_collecting_works(
    shared_server: Served, tmp_path: Path
) -> None:
    steps = commands("collect-results-over-http")
    _, polled, waited, called, replayed, followed, cancelled, anywhere, listed = answers(
        shared_server, tmp_path, steps
    )
    assert "id" in json.loads(polled)
    for answer in waited.split("\n")[:2]:
        job = json.loads(answer)
        assert (job["status"], job["result_summary"]) == ("completed", {"message": "hello"})
    assert json.loads(called) == {"message": "hello"}
    first, second = (json.loads(answer) for answer in replayed.split("\n")[:2])
    assert first["job_id"] == second["job_id"]
    assert followed.count("event: end") == 2
    assert json.loads(cancelled)["code"] == "job_already_ended"
    job = json.loads(anywhere)
    assert (job["surface"], job["state"], job["result"]) == (
        "gateway",
        "completed",
        {"message": "hello"},
    )
    page, batch = (json.loads(answer) for answer in listed.split("\n")[:2])
    assert page["total"] >= 3  # the one that is handed in twice may not have ended yet
    assert len(batch["items"]) == 1


@pytest.mark.slow
def test_a_job_is_the_same_in_its_own_product_and_in_the_console(
    shared_server: Served, tmp_path: Path
) -> None:
    _, job, task = answers(shared_server, tmp_path, commands("dialects"))
    own, plain = (literal_eval(line) for line in job.split("\n") if line)
    assert own["status"] == plain["state"] == "completed"
    assert own["result_summary"] == plain["result"] == {"message": "hello"}
    assert own["id"] == plain["id"]
    own, plain = (literal_eval(line) for line in task.split("\n") if line)
    assert (own["status"], plain["state"]) == ("succeeded", "completed")
    assert own["result"] == plain["result"] == {"message": "hello"}
    assert own["id"] == plain["task_id"]


@pytest.mark.slow
def test_every_command_of_the_guide_to_graphs_works(shared_server: Served, tmp_path: Path) -> None:
    steps = commands("analyse-code")
    _, handed_in, _, shown, followed, _, parts, verified = answers(shared_server, tmp_path, steps)
    job = json.loads(handed_in)["jobId"]
    assert parts == "Prices and Till 2 []\n"
    assert shown == "total calls price in line 5\n"
    assert "event: end" in followed
    call, again, everything = (
        json.loads((tmp_path / name).read_text())
        for name in ("call.json", "again.json", "everything.json")
    )
    assert call["jobId"] == again["jobId"] == job
    assert everything["result"]["domains"]
    assert job in verified


@pytest.mark.slow
def test_every_command_of_the_guide_to_batches_works(shared_server: Served, tmp_path: Path) -> None:
    steps = commands("run-a-batch")
    _, small, tasks, long, staged, followed, rerun, exported, opened, deleted = answers(
        shared_server, tmp_path, steps
    )
    job = json.loads(small)
    assert (job["status"], job["counts"]["succeeded"], job["counts"]["failed"]) == (
        "completed",
        2,
        1,
    )
    page, failed = (json.loads(answer) for answer in tasks.split("\n")[:2])
    assert [task["custom_id"] for task in page["items"]] == [None, "second"]
    assert [task["index"] for task in failed["items"]] == [2]
    counts, bad_lines = long.strip().split("\n")
    assert "'succeeded': 1999" in counts
    assert [line["line"] for line in json.loads(bad_lines)["items"]] == [1501]
    assert staged.strip() == "completed"
    assert "event: end" in followed
    assert "'total': 1," in rerun
    assert "results.ndjson" in exported
    assert "'succeeded': 1," in opened
    status, gone = deleted.strip().split("\n")
    assert (status, json.loads(gone)["code"]) == ("204", "job_not_found")
