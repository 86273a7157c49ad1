"""The commands of the guide to the command line do what it says."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coatcheck.cli.app import app
from tests.cli.conftest import Live
from tests.markdown import REPOSITORY, Page

PAGE = Page(REPOSITORY / "docs" / "how-to" / "use-the-command-line.md")

STARTED = "coatcheck up shop:shop"  # in place of which there is a server with that service


def command_lines() -> list[list[str]]:
    return [
        shlex.split(line, comments=True)[1:]
        for block in PAGE.blocks("sh")
        for line in block.text.splitlines()
        if line != STARTED
    ]


def test_every_command_of_the_guide_works(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = [block for block in PAGE.blocks("python") if block.file_name == "shop.py"]
    (tmp_path / "shop.py").write_text(program.text)
    (tmp_path / "orders.ndjson").write_text('{"order": 7}\n{"order": 8}\n')
    specification = importlib.util.spec_from_file_location("shop", tmp_path / "shop.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "shop", module)
    specification.loader.exec_module(module)
    assert live.deployment is not None
    live.do(live.deployment.start_worker(module.shop))
    (configuration,) = PAGE.blocks("toml")
    (live.folder / "config.toml").write_text(
        configuration.text.replace("https://jobs.example.org", live.url).replace("acme", "default")
    )
    (live.folder / "work-key").write_text(live.key)

    job_id = ""
    seen: set[str] = set()
    for words in command_lines():
        if job_id == "" and "JOB" in words:
            job_id = live.shown("jobs", "--json", "--limit", "1")["id"]
        arguments = [job_id if word == "JOB" else word for word in words]
        fails = '{"order": 9}' in arguments or arguments[0] == "replay"
        ran = CliRunner().invoke(app, arguments, env=live.variables)
        assert ran.exit_code == (1 if fails else 0), (arguments, ran.output)
        if '{"order": 9}' in arguments:
            job_id = json.loads(ran.stdout)["id"]
        if arguments[0] == "replay":
            assert "KeyError: 9" in ran.stderr
            assert "looking the order up" in ran.stderr
        seen.add(arguments[0])
    assert seen >= {"submit", "jobs", "top", "explain", "logs", "replay", "retry", "batch"}
    assert json.loads((tmp_path / "graph.json").read_text())["stats"]["functions"] == 1
