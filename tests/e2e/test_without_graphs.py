"""A deployment in which what analyses code was never installed."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import httpx2
import pytest

from coatcheck.tls import trusted_authorities
from tests.e2e.conftest import Up, environment
from tests.e2e.test_up import StartUp
from tests.products.graphs.archives import PROGRAM, form, zipped
from tests.waiting import LIMIT_SECONDS

OF_THE_EXTRA = (
    "_editable_impl_coatcheck_codegraph",
    "coatcheck_codegraph",
    "networkx",
    "tree_sitter",
)
SAID_ONCE = "this worker does not analyse code; to enable that, run pip install"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with all that is installed here but the extra: nothing is blocked, there is
    nothing to import."""
    folder = tmp_path_factory.mktemp("without-graphs") / "venv"
    venv.EnvBuilder(symlinks=True).create(folder)
    installed = Path(sysconfig.get_path("purelib"))
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": folder, "platbase": folder}))
    for entry in installed.iterdir():
        if not entry.name.startswith(OF_THE_EXTRA):
            (packages / entry.name).symlink_to(entry)
    return str(folder / "bin" / "python")


def test_neither_the_package_nor_a_grammar_can_be_imported(python: str) -> None:
    for module, can_be in (("coatcheck", True), ("coatcheck_codegraph", False)):
        imported = subprocess.run(
            [python, "-c", f"import {module}"], env=environment(), capture_output=True, text=True
        )
        assert (imported.returncode == 0) == can_be, imported.stderr
    assert "No module named" in imported.stderr


def analyse(up: Up, key: str) -> httpx2.Response:
    return httpx2.post(
        f"http://127.0.0.1:{up.port}/v1/graphs/call",
        files=form(zipped(PROGRAM)),
        headers={
            "Authorization": f"Bearer {(up.data / 'dev-key').read_text().strip()}",
            "Idempotency-Key": key,
        },
        timeout=LIMIT_SECONDS,
        verify=trusted_authorities(trust_env=False),
        trust_env=False,
    )


@pytest.mark.slow
def test_a_submission_says_what_to_install_and_everything_else_works(
    start_up: StartUp, python: str
) -> None:
    up = start_up(python=python)
    up.wait_until_ready()

    refused = analyse(up, "k")
    assert refused.status_code == 501
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.json()["code"] == "graphs_not_installed"
    assert 'pip install "coatcheck[graphs]"' in refused.json()["detail"]

    tried = subprocess.run(
        up.first_command(),
        cwd="/",
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert tried.returncode == 0, tried.stderr
    assert json.loads(tried.stdout)["state"] == "completed"

    assert up.stop() == 0
    assert up.said().count(SAID_ONCE) == 1
    assert "Traceback" not in up.said()


@pytest.mark.slow
def test_with_it_the_same_submission_is_a_job(start_up: StartUp) -> None:
    """The other half of the proof: what the venv above leaves out is what makes the difference."""
    up = start_up(python=sys.executable)
    up.wait_until_ready()
    assert analyse(up, "k").status_code == 202
    assert SAID_ONCE not in up.said()
