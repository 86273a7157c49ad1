"""The guide to recorded chats, and the reference of clients' routes, run as they stand there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import ollama
import openai
import pytest

from tests.markdown import pages
from tests.products.llm.talking import MODEL, talking
from tests.shell_variables import assigned

DOCUMENTED_URL = "http://127.0.0.1:8080"
DOCUMENTED_DATA = ".coatcheck"
SECONDS_MAX = 60  # only a command that hangs takes so long


async def printed(folder: Path, url: str) -> list[str]:
    """What each block of the guide prints."""
    (page,) = [page for page in pages("docs/how-to") if page.path.stem == "queue-chats"]
    # Where the models are is said in tests/unit/test_documented_settings.py.
    steps = [block.text for block in page.blocks("sh") if "make up" not in block.text]
    script = "\necho ----\n".join(["set -euo pipefail\n" + steps[0], *steps[1:]])
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", script.replace(DOCUMENTED_URL, url)),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS_MAX):
        output, errors = await process.communicate()
    assert process.returncode == 0, (output + errors).decode()
    return output.decode().split("----\n")


def ids(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.startswith("id: ")]


@pytest.mark.slow
async def test_every_command_of_the_guide_works(dsn: str, tmp_path: Path) -> None:
    async with talking(dsn, tmp_path / "deployment") as talk:
        folder = tmp_path / "shell"
        (folder / DOCUMENTED_DATA).mkdir(parents=True)
        (folder / DOCUMENTED_DATA / "dev-key").write_text(talk.deployment.key)
        _, collected, watched, _, rest = await printed(folder, talk.url())
        shown = await talk.deployment.http.get("/jobs", params={"limit": 1})
        await asyncio.to_thread(ask_by_both_packages, talk.url(), talk.deployment.key)
    job = json.loads((folder / "job.json").read_text())
    assert collected == f"done {job['result']['message']['content']}\n"
    assert watched == "event: end\n"
    assert ids(folder / "rest.txt") == ids(folder / "events.txt")[3:]
    assert job["job_id"] in rest
    (newest,) = shown.json()["items"]
    # It may have been faster than its cancellation.
    assert newest["job_id"] in rest or "job_already_ended" in rest


def ask_by_both_packages(url: str, key: str) -> None:
    """By the clients that the reference makes."""
    (page,) = [page for page in pages("docs/reference") if page.path.stem == "llm-passthrough"]
    (program,) = page.blocks("python")
    clients: dict[str, Any] = {}
    exec(program.text.replace(DOCUMENTED_URL, url).replace("cck_...", key), clients)
    assert MODEL in str(clients["with_ollama"].list())
    assert MODEL in str(clients["with_openai"].models.list())
    (script,) = page.blocks("sh")
    settings = script.text.replace(DOCUMENTED_URL, url).replace("cck_...", key)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in assigned(settings).items():
            environment.setenv(name, value)
        assert MODEL in str(ollama.Client().list())
        assert MODEL in str(openai.OpenAI().models.list())
