"""What a command loads before it runs: its own, and not what the others need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from coatcheck.cli.app import COMMANDS, LazyCommand

SHOW_MODULES = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
"""

RUN = SHOW_MODULES + "from coatcheck.cli.entry import main; main()"

HEAVY = {
    *("asyncpg", "cryptography", "httpx2", "jwt", "networkx", "obstore"),
    *("prometheus_client", "psutil", "pydantic", "tree_sitter", "uvicorn", "uvloop"),
}
CONNECTS = {"anyio", "coatcheck.egress.connector", "h11", "httpcore2", "truststore"}
"""What opens connections to others."""

SERVER = (
    SHOW_MODULES
    + """
import importlib, pkgutil
import coatcheck.cli.serve, coatcheck.maintenance.webhooks, coatcheck.products

for found in pkgutil.walk_packages(coatcheck.products.__path__, "coatcheck.products."):
    if found.name.endswith("routes"):
        importlib.import_module(found.name)
"""
)


def loaded_by(program: str, *arguments: str, status: int = 0) -> set[str]:
    """The packages and modules that a program has imported when it ends."""
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True
    )
    assert ended.returncode == status, ended.stderr
    return set(ended.stderr.split())


def test_the_package_alone_loads_nothing_of_itself() -> None:
    loaded = loaded_by(SHOW_MODULES + "import coatcheck")
    assert {each for each in loaded if each.startswith("coatcheck.")} == {"coatcheck.version"}
    assert not loaded & {*HEAVY, "asyncio", "msgspec", "ssl"}


def test_a_client_loads_neither_a_server_nor_what_is_for_asyncio() -> None:
    loaded = loaded_by(SHOW_MODULES + "from coatcheck import Client")
    assert "coatcheck.client._sync.client" in loaded
    assert not loaded & (HEAVY - {"httpx2"})
    assert not loaded & {"asyncio", "multiprocessing", "rich", "subprocess", "typer", *CONNECTS}
    assert not {each for each in loaded if each.startswith("coatcheck.client._async")}
    ours = {each.split(".")[1] for each in loaded if each.startswith("coatcheck.")}
    assert ours == {"client", "domain", "encoding", "tls", "version"}


def test_a_client_for_asyncio_loads_neither_a_server_nor_the_other_client() -> None:
    loaded = loaded_by(SHOW_MODULES + "from coatcheck import AsyncClient")
    assert "coatcheck.client._async.client" in loaded
    assert not loaded & (HEAVY - {"httpx2"})
    assert not loaded & {"multiprocessing", "rich", "typer", *CONNECTS}
    assert not {each for each in loaded if each.startswith("coatcheck.client._sync")}


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_what_every_command_can_be_asked_loads_none_of_them(option: str) -> None:
    loaded = loaded_by(RUN, option)
    assert "coatcheck.cli.app" in loaded
    assert not loaded & HEAVY
    assert not {name for name in loaded if name.startswith("coatcheck.db")}


def test_a_command_on_the_database_loads_no_server_and_no_client() -> None:
    loaded = loaded_by(RUN, "orgs", "list", "--help")
    assert "coatcheck.cli.orgs" in loaded
    assert not loaded & (HEAVY - {"asyncpg", "psutil"})
    assert not loaded & {"coatcheck.client", "coatcheck.http", "coatcheck.worker"}


@pytest.mark.parametrize("command", ["jobs", "keys"])
def test_a_command_that_asks_a_server_loads_neither_one_nor_a_database(command: str) -> None:
    loaded = loaded_by(RUN, command, "--help")
    assert f"coatcheck.cli.{command}" in loaded
    assert not loaded & (HEAVY - {"httpx2", "psutil"})
    assert not loaded & {"coatcheck.http", "coatcheck.core", "coatcheck.worker"}


def test_the_options_of_a_server_load_no_pydantic() -> None:
    loaded = loaded_by(RUN, "serve", "--host", "127.0.0.1", "--port", "no number", status=2)
    assert "pydantic" in loaded, "Typer refuses it, and says why"
    loaded = loaded_by(RUN, "serve", "--host", "127.0.0.1", "--port", "65536", status=2)
    assert "coatcheck.cli.serve" in loaded
    assert "pydantic" not in loaded


def test_a_worker_loads_neither_an_engine_nor_what_analyses_code() -> None:
    loaded = loaded_by(SHOW_MODULES + "import coatcheck.cli.worker")
    assert "coatcheck.worker.worker" in loaded
    assert not loaded & {"cryptography", "jwt", "networkx", "rich", "tree_sitter", "uvicorn"}
    assert not loaded & {"coatcheck.client", "coatcheck_codegraph", "coatcheck.core.engine"}
    assert not loaded & CONNECTS


def test_a_server_loads_no_worker_and_templates_and_tokens_only_when_it_needs_them() -> None:
    loaded = loaded_by(SHOW_MODULES + "import coatcheck.cli.serve")
    assert {"coatcheck.dashboard.pages", "coatcheck.http.auth.authenticator"} <= loaded
    assert not loaded & {"coatcheck.worker.worker", "cryptography", "jinja2", "jwt", "rich"}


def test_a_server_with_all_products_loads_what_connects_to_others_only_when_it_calls_them() -> None:
    loaded = loaded_by(SERVER)
    assert "coatcheck.products.llm.submit_routes" in loaded
    assert not loaded & CONNECTS


def test_a_server_loads_nothing_that_analyses_code() -> None:
    loaded = loaded_by(SHOW_MODULES + "import coatcheck.products.graphs.submit_routes")
    assert "coatcheck.products.graphs.submit_routes" in loaded
    assert not loaded & {"coatcheck_codegraph", "networkx", "tree_sitter"}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_is_listed_with_the_beginning_of_its_own_help(command: LazyCommand) -> None:
    own = command.load()
    assert own.name == command.name
    assert (own.help or "").partition("\n\n")[0] == command.help
    assert not own.hidden
    assert not own.deprecated


INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == NAME:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from coatcheck.cli.entry import main
sys.argv[1:] = ["jobs"]
main()
"""


@pytest.mark.parametrize("loading", ["typer", "coatcheck.cli.app", "coatcheck.cli.jobs", "httpx2"])
def test_ctrl_c_while_a_command_is_loaded_ends_it_without_a_word(loading: str) -> None:
    program = f"NAME = {loading!r}\n{INTERRUPTED}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
