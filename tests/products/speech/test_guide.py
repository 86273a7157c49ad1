"""The commands of the guide to speaking, and the example, run as they stand there."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from coatcheck.cli.data_dir import ISSUER
from coatcheck.settings.parsers import TokenIssuer
from tests.markdown import REPOSITORY, pages
from tests.products.speech.speech_deployment import seconds_of, speech_deployment

DOCUMENTED_URL = "http://127.0.0.1:8080"
SECRET = "the secret of an up that never was"
SECONDS_MAX = 60  # only a command that hangs takes so long


async def printed(folder: Path, script: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", "set -euo pipefail\n" + script),
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("COATCHECK")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS_MAX):
        output, errors = await process.communicate()
    assert process.returncode == 0, (output + errors).decode()
    return output.decode()


@pytest.mark.slow
async def test_every_command_of_the_guide_works_and_so_does_the_example(
    dsn: str, tmp_path: Path, data_root: Path
) -> None:
    (page,) = [page for page in pages("docs/how-to") if page.path.stem == "speak"]
    # How it is started is in tests/unit/test_documented_settings.py.
    steps = [block.text for block in page.blocks("sh") if "make " not in block.text]
    example = (
        f"COATCHECK_URL=$API COATCHECK_API_KEY=${{AUTH#*Bearer }} {sys.executable} "
        f'{REPOSITORY}/examples/speech/say.py me.wav "Your coat is ready." said.wav\n'
    )
    folder = data_root  # which PostgreSQL's account could enter, as `up` would want it to
    (folder / ".coatcheck").mkdir()
    (folder / ".coatcheck" / "jwt-secret").write_text(SECRET)
    issuer = TokenIssuer(issuer=ISSUER, audience=ISSUER, secret=SECRET)
    async with speech_deployment(dsn, tmp_path / "deployment", jwt_issuers=(issuer,)) as speech:
        await speech.deployment.start_remote_worker()
        script = "\necho ----\n".join([*steps[:-1], example, steps[-1]])
        script = script.replace(DOCUMENTED_URL, str(speech.http.base_url).rstrip("/"))
        # What is meant by no folder depends on who runs the tests.
        command = f"{Path(sys.executable).with_name('coatcheck')} token --data .coatcheck"
        output = await printed(folder, script.replace(".venv/bin/coatcheck token", command))
    _, _, _, polled, fetched, previewed, followed, said, rest = output.split("----\n")
    status, seconds = polled.split()
    assert status == "completed"
    audio = (folder / "ready.wav").read_bytes()
    assert float(seconds) == pytest.approx(seconds_of(audio), abs=0.01)
    assert float(fetched.split()[0]) == seconds_of(audio)
    assert previewed.split() == ["design_preview", "completed"]
    assert followed.startswith("retry: ")
    assert "said.wav plays for" in said
    assert (folder / "said.wav").read_bytes() == audio  # the same text, by the same voice
    assert rest.count('"status":"completed"') == 4
