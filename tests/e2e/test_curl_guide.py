"""The commands of the guide to HTTP, run by a shell as they stand there, against a real server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.test_up import StartUp
from tests.markdown import pages
from tests.waiting import LIMIT_SECONDS

GUIDE = "collect-results-over-http"
DOCUMENTED_URL = "http://127.0.0.1:8080"
DOCUMENTED_DATA = ".coatcheck"


def commands() -> list[str]:
    (page,) = [page for page in pages("docs") if page.path.stem == GUIDE]
    return [block.text for block in page.blocks("sh")]


@pytest.mark.slow
def test_every_command_of_the_guide_works(start_up: StartUp, tmp_path: Path) -> None:
    up = start_up()
    up.wait_until_ready()
    setup, poll, wait, call, once, follow, cancel, many = commands()
    script = "\necho ----\n".join(
        ["set -euo pipefail\n" + setup, poll, wait, call, once, follow, cancel, many]
    )
    script = script.replace(DOCUMENTED_URL, f"http://127.0.0.1:{up.port}")
    script = script.replace(DOCUMENTED_DATA, str(up.data))
    # One answer a line.
    script = script.replace("curl -s ", "curl -sw '\\n' ")
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert ran.returncode == 0, ran.stderr
    _, polled, waited, called, replayed, followed, cancelled, listed = ran.stdout.split("----\n")
    assert "id" in json.loads(polled)
    for answer in waited.split("\n")[:2]:
        job = json.loads(answer)
        assert (job["status"], job["result_summary"]) == ("completed", {"message": "hello"})
    assert json.loads(called) == {"message": "hello"}
    first, second = (json.loads(answer) for answer in replayed.split("\n")[:2])
    assert first["job_id"] == second["job_id"]
    assert followed.count("event: end") == 2
    assert json.loads(cancelled)["code"] == "job_already_ended"
    page, batch = (json.loads(answer) for answer in listed.split("\n")[:2])
    assert page["total"] >= 4
    assert len(batch["items"]) == 1
