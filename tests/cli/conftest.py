"""One live deployment for the commands of a module, and commands that are run in this process."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from typer.testing import CliRunner, Result

from coatcheck.cli.app import app
from tests.cli import desk_service
from tests.databases import Databases
from tests.deployment import Deployment
from tests.waiting import LIMIT_SECONDS

ResultT = TypeVar("ResultT")


@dataclass
class Live:
    """A server and a worker in a thread of their own, on a database of their own."""

    folder: Path
    url: str = ""
    key: str = ""
    deployment: Deployment | None = None
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def do(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run something where the server runs."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LIMIT_SECONDS)

    @property
    def variables(self) -> dict[str, str]:
        return {
            "COATCHECK_URL": self.url,
            "COATCHECK_API_KEY": self.key,
            "COATCHECK_CONFIG": str(self.folder / "config.toml"),
            "COLUMNS": "200",
        }

    def run(self, *arguments: str, exit_code: int = 0, **variables: str) -> Result:
        """A command, as in a pipe."""
        ran = CliRunner().invoke(app, arguments, env=self.variables | variables)
        assert ran.exit_code == exit_code, (arguments, ran.output, ran.exception)
        assert "Traceback" not in ran.stderr
        return ran

    def shown(self, *arguments: str, exit_code: int = 0) -> Any:
        """What a command prints, as the JSON that it is."""
        return json.loads(self.run(*arguments, exit_code=exit_code).stdout)

    def failed(self) -> dict[str, Any]:
        """A job that has failed for good."""
        job: dict[str, Any] = self.shown("submit", "desk/break", "--wait", exit_code=1)
        return job

    def open_gate(self, name: str) -> None:
        """Let the jobs of ``desk/hold`` go that wait for it."""
        (self.folder / name).touch()


@pytest.fixture(scope="module")
def live(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    (folder / "config.toml").touch()
    made = Live(folder)
    desk_service.FOLDER = folder
    closing = AsyncExitStack()

    async def start() -> None:
        dsn = await closing.enter_async_context(databases.fresh())
        deployment = await closing.enter_async_context(
            Deployment(dsn, folder, operator_org="default")
        )
        await deployment.start_worker(desk_service.desk)
        await deployment.start_graphs_worker()
        deployment.start_maintenance()
        made.deployment, made.url, made.key = (
            deployment,
            str(deployment.http.base_url),
            deployment.key,
        )

    thread = threading.Thread(target=made.loop.run_forever, daemon=True)
    thread.start()
    try:
        made.do(start())
        yield made
    finally:
        made.do(closing.aclose())
        made.loop.call_soon_threadsafe(made.loop.stop)
        thread.join(LIMIT_SECONDS)
        made.loop.close()


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own settings are not the tests'."""
    for name in [name for name in os.environ if name.startswith("COATCHECK_")]:
        if not name.startswith("COATCHECK_TEST"):
            monkeypatch.delenv(name)
