"""Which products are on in the processes of a deployment, and what those that are off cost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.distributions import write_distribution
from tests.e2e.conftest import SOURCE, coatcheck, environment, free_port
from tests.markdown import pages
from tests.waiting import LIMIT_SECONDS, eventually

PROGRAM = """
import atexit, pathlib, sys
atexit.register(lambda: pathlib.Path("modules").write_text("\\n".join(sys.modules)))
from coatcheck.cli.entry import main
main()
"""
"""The command itself, which leaves behind what it has imported."""

PATHS = ("/v1/jobs", "/v1/graphs/receipt-keys", "/voices", "/api/tags", "/v1/models")
"""Of batches, graphs, speech and llm."""

API = """
from http import HTTPStatus

from coatcheck.http.routing import ResponseSpec, Route
from coatcheck.http.response import json_response

def routes(server):
    async def said(request):
        return json_response({"echo": server.settings.products})

    return [
        Route(
            methods=["GET"],
            path="/v1/echo",
            name="echo",
            summary="Says which products are on.",
            handler=said,
            tag="echo",
            responses=[ResponseSpec(HTTPStatus.OK, "The products.", schema={})],
        )
    ]
"""
"""What the product of the reference page serves."""


@contextmanager
def running(*arguments: str, ready: str, folder: Path, **variables: str) -> Iterator[None]:
    """A command that runs, once it has logged that it is ready; at the end it has to stop well."""
    log = folder / "process.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=folder,
            env=environment(
                COATCHECK_BLOB_URL=(folder / "blobs").as_uri(),
                COATCHECK_KEY_PEPPER="p" * 32,
                **variables,
            ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        eventually(
            lambda: process.poll() is not None or ready in log.read_text(), "the command is ready"
        )
        assert process.poll() is None, log.read_text()
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_SECONDS) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(LIMIT_SECONDS)


@contextmanager
def served(dsn: str, folder: Path, **variables: str) -> Iterator[httpx2.Client]:
    port = free_port()
    with (
        running(
            "serve",
            f"--port={port}",
            ready="serving on",
            folder=folder,
            COATCHECK_DATABASE_URL=dsn,
            **variables,
        ),
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
    ):

        def answers() -> bool:
            try:
                return client.get("/readyz").is_success
            except httpx2.TransportError:
                return False

        eventually(answers, "the server answers")
        yield client


def products_imported(folder: Path) -> set[str]:
    """The products of which a process has imported something, by where their modules are."""
    modules = (folder / "modules").read_text().splitlines()
    assert "coatcheck.db.connection" in modules, "it ran"
    found = {name.split(".")[2] for name in modules if name.startswith("coatcheck.products.")}
    for product, theirs in {
        "graphs": ("coatcheck.codegraph", "tree_sitter", "networkx"),
        "llm": (
            "coatcheck.products.llm.repository",
            "coatcheck.products.llm.queries",
            "coatcheck.products.llm.model",
        ),
        "speech": (
            "coatcheck.products.speech.repository",
            "coatcheck.products.speech.model",
        ),
        "batches": (
            "coatcheck.products.batches.repository",
            "coatcheck.products.batches.task_repository",
        ),
    }.items():
        if any(name == each or name.startswith(f"{each}.") for name in modules for each in theirs):
            found.add(product)
    return found


def test_a_server_for_the_gateway_alone_imports_no_other_product(dsn: str, tmp_path: Path) -> None:
    with served(dsn, tmp_path, COATCHECK_PRODUCTS="gateway") as client:
        nowhere = client.get("/v1/nowhere").json()
        for path in PATHS:
            answer = client.get(path)
            assert answer.status_code == 404, path
            assert answer.json()["code"] == nowhere["code"], path
        document = client.get("/openapi.json").json()
        assert any("hosted-services" in path for path in document["paths"])
        assert not any(path.startswith("/v1/graphs") for path in document["paths"])
    assert products_imported(tmp_path) == {"gateway"}


def test_a_worker_for_the_gateway_alone_imports_no_other_product(dsn: str, tmp_path: Path) -> None:
    with running(
        "worker",
        ready="worker ready",
        folder=tmp_path,
        COATCHECK_DATABASE_URL=dsn,
        COATCHECK_PRODUCTS="gateway",
    ):
        pass
    assert products_imported(tmp_path) == {"gateway"}


def test_all_products_are_imported_unless_some_are_chosen(dsn: str, tmp_path: Path) -> None:
    with served(dsn, tmp_path) as client:
        for path in PATHS:
            assert client.get(path).status_code in (200, 401), path
    assert products_imported(tmp_path) >= {"batches", "console", "gateway", "llm", "speech"}


def test_the_product_of_the_reference_page_is_served(dsn: str, tmp_path: Path) -> None:
    (page,) = pages("docs/reference/products.md")
    (product,) = page.blocks("python")
    (registration,) = page.blocks("toml")
    packages = tmp_path / "packages"
    (packages / "coatcheck_echo").mkdir(parents=True)
    write_distribution(
        packages,
        "coatcheck-echo",
        modules={
            "coatcheck_echo/__init__.py": "",
            "coatcheck_echo/product.py": product.text,
            "coatcheck_echo/api.py": API,
        },
        entry_points=tomllib.loads(registration.text)["project"]["entry-points"],
    )
    with served(
        dsn,
        tmp_path,
        PYTHONPATH=os.pathsep.join([str(SOURCE), str(packages)]),
        COATCHECK_PRODUCTS="echo,gateway",
    ) as client:
        assert client.get("/v1/echo").json() == {"echo": ["echo", "gateway"]}
        assert "/v1/echo" in client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize("command", ["serve", "worker", "up"])
def test_a_product_that_is_not_installed_stops_a_process_at_its_start(
    command: str, dsn: str, tmp_path: Path
) -> None:
    ended = coatcheck(
        command,
        cwd=tmp_path,
        COATCHECK_DATABASE_URL=dsn,
        COATCHECK_KEY_PEPPER="p" * 32,
        COATCHECK_PRODUCTS="gateway,tts",
    )
    assert ended.returncode == 2, ended.stderr
    assert "COATCHECK_PRODUCTS: tts is not installed; installed are batches, co" in ended.stderr


def test_a_worker_that_has_nothing_to_run_says_so(dsn: str, tmp_path: Path) -> None:
    ended = coatcheck(
        "worker", cwd=tmp_path, COATCHECK_DATABASE_URL=dsn, COATCHECK_PRODUCTS="console"
    )
    assert ended.returncode == 2, ended.stderr
    assert "there is nothing to run" in ended.stderr


def test_the_doctor_names_a_product_that_is_not_installed(dsn: str, tmp_path: Path) -> None:
    ended = coatcheck(
        *("doctor", "--json"), cwd=tmp_path, COATCHECK_DATABASE_URL=dsn, COATCHECK_PRODUCTS="tts"
    )
    assert ended.returncode == 1
    assert "tts is not installed" in ended.stdout
