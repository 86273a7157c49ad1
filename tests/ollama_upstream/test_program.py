"""The upstream as a program of its own."""

from __future__ import annotations

import signal
import subprocess
import sys

import httpx2
import pytest

from tests.markdown import REPOSITORY
from tests.waiting import LIMIT_SECONDS

BY_NAME = ["-m", "examples.ollama_upstream"]
BY_PATH = [str(REPOSITORY / "examples" / "ollama_upstream")]


@pytest.mark.parametrize("how", [BY_NAME, BY_PATH], ids=["by name", "by path"])
def test_it_serves_until_it_is_told_to_stop(how: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, *how, "--port", "0", "--model", "mistral", "--tokens-per-second", "0"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith("listening on http://127.0.0.1:")
        with httpx2.Client(base_url=said.split()[-1], trust_env=False) as http:
            (model,) = http.get("/api/tags").json()["models"]
        assert model["name"] == "mistral:latest"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
