"""The page "Add an API of your own": its package is built, installed, and called as it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import SOURCE
from tests.e2e.test_curl_guide import answers
from tests.e2e.test_up import StartUp
from tests.echo_product import echo_page, write_sources
from tests.waiting import LIMIT_SECONDS


def install(command: str, folder: Path) -> Path:
    """Run the page's command, without a network and into a folder of the test's own."""
    target = folder / "installed"
    subprocess.run(
        ["bash", "-ec", command],
        cwd=folder,
        env=os.environ
        | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PIP_TARGET": str(target),
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this one the other way round
        },
        check=True,
        timeout=LIMIT_SECONDS,
    )
    return target


@pytest.mark.slow
def test_the_product_of_the_page_is_installed_and_answers(
    start_up: StartUp, tmp_path: Path
) -> None:
    write_sources(tmp_path / "coatcheck-echo")
    command, *steps = [block.text for block in echo_page().blocks("sh")]
    installed = install(command, tmp_path)
    up = start_up(PYTHONPATH=os.pathsep.join([str(SOURCE), str(installed)]))
    up.wait_until_ready()
    _, said, lists = answers(up, tmp_path, steps)
    echo = json.loads(said)
    (shown,) = [json.loads(block.text) for block in echo_page().blocks("json")]
    assert said.replace(echo["id"], shown["id"]).strip() == json.dumps(shown, separators=(",", ":"))
    own, console = (json.loads(line) for line in lists.split("\n") if line)
    assert [item["id"] for item in own["items"]] == [echo["id"]]
    assert [(item["id"], item["surface"]) for item in console["items"]] == [(echo["id"], "echo")]
