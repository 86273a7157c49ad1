"""The remote as a program of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from examples.tts_remote import TtsRemote
from tests.markdown import REPOSITORY
from tests.waiting import LIMIT_SECONDS

BY_NAME = ["-m", "examples.tts_remote"]
BY_PATH = [str(REPOSITORY / "examples" / "tts_remote")]


@pytest.mark.parametrize("how", [BY_NAME, BY_PATH], ids=["by name", "by path"])
def test_it_serves_until_it_is_told_to_stop(how: list[str], tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, *how, "--port", "0", "--folder", str(tmp_path), "--bearer", "secret"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said.startswith("listening on http://127.0.0.1:")
        bearer = {"Authorization": "Bearer secret"}
        with httpx2.Client(base_url=said.split()[-1], headers=bearer, trust_env=False) as http:
            made = http.post("/submit-job", json={"text": "One.", "language": "en"}).json()
            assert http.get("/job-status", params=made).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_it_says_so_if_another_one_has_the_folder(tmp_path: Path) -> None:
    async with TtsRemote(tmp_path):
        ended = subprocess.run(
            [sys.executable, *BY_NAME, "--port", "0", "--folder", str(tmp_path)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
        )
    assert (ended.returncode, ended.stderr) == (1, f"error: another remote uses {tmp_path}\n")
