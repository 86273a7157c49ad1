"""What a server and a worker load only when it is needed: idle, they do without."""

from __future__ import annotations

import os
from pathlib import Path

from tests.e2e.conftest import SOURCE
from tests.e2e.test_products import running, served

NOT_NEEDED = {
    "cryptography",  # to seal and open secrets, cookies and receipts
    "jinja2",  # to show a page
    "jwt",  # to verify tokens and sign receipts
    "opentelemetry.sdk",  # to export traces
    "pycares",  # to look a name up
    "pydantic",  # for types that only pydantic supports
    "rich",  # to print for people
    "swagger_ui",  # to show the API's documentation
    "tree_sitter",  # to analyse code
}
NOTE_AUTHORITIES = """
import pathlib, ssl

read = ssl.SSLContext.load_verify_locations

def noting(*arguments, **options):
    pathlib.Path("authorities").touch()
    return read(*arguments, **options)

ssl.SSLContext.load_verify_locations = noting
"""


def watched(folder: Path) -> dict[str, str]:
    """The environment of a process that leaves a file when it reads certificate authorities."""
    watching = folder / "watching"
    watching.mkdir()
    (watching / "sitecustomize.py").write_text(NOTE_AUTHORITIES)
    return {"PYTHONPATH": os.pathsep.join([str(watching), str(SOURCE)])}


def assert_little_is_loaded(folder: Path) -> None:
    modules = set((folder / "modules").read_text().splitlines())
    assert {"sitecustomize", "coatcheck.db.connection"} <= modules, "it ran and was watched"
    assert not modules & NOT_NEEDED
    assert not (folder / "authorities").exists()


def test_an_idle_server_has_loaded_only_what_it_needs(dsn: str, tmp_path: Path) -> None:
    with served(dsn, tmp_path, **watched(tmp_path)):
        pass
    assert_little_is_loaded(tmp_path)


def test_an_idle_worker_has_loaded_only_what_it_needs(dsn: str, tmp_path: Path) -> None:
    with running(
        *("worker", "coatcheck.cli.demo:demo"),
        ready="worker ready",
        folder=tmp_path,
        COATCHECK_DATABASE_URL=dsn,
        **watched(tmp_path),
    ):
        pass
    assert_little_is_loaded(tmp_path)
