"""A canary beside a stable worker, as an operator runs and ends it: processes, commands, doctor."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import coatcheck, environment, free_port, start_coatcheck
from tests.forked_process import ForkedProcess
from tests.waiting import LIMIT_SECONDS, eventually

CODE = """
from coatcheck import Service

shop = Service("shop")


@shop.post("/pay", lane="{lane}")
async def pay() -> str:
    return "{lane}"


@shop.post("{path}")
async def other() -> str:
    return "{path}"
"""
LEASES = "urgent=3,standard=3,bulk=3"


class ShopDeployment:
    """A server and workers on a database, each a process, in one folder.

    Not a ``Deployment``: even its organisation and its key are made by the commands under test.
    """

    def __init__(self, dsn: str, folder: Path, closing: ExitStack) -> None:
        self.folder = folder
        self._closing = closing
        self._port = free_port()
        self._variables = {
            "COATCHECK_DATABASE_URL": dsn,
            "COATCHECK_BLOB_URL": (folder / "blobs").as_uri(),
            "COATCHECK_TEMP_DIR": str(folder / "temp"),
            "COATCHECK_KEY_PEPPER": "p" * 32,
            "COATCHECK_OPERATOR_ORG": "acme",
            "COATCHECK_LANE_ACK_SECONDS": LEASES,
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return coatcheck(*arguments, cwd=self.folder, **self._variables)

    def serve(self) -> None:
        assert self.run("orgs", "create", "acme").returncode == 0
        key = self.run("keys", "create", "--org", "acme").stdout.strip()
        self.http = httpx2.Client(
            base_url=f"http://127.0.0.1:{self._port}",
            headers={"Authorization": f"Bearer {key}"},
            trust_env=False,
            timeout=60,
        )
        self._closing.callback(self.http.close)
        self._start("serve", "serve", "--port", str(self._port))

        def ready() -> bool:
            try:
                return self.http.get("/readyz").is_success
            except httpx2.HTTPError:
                return False

        eventually(ready, "the server is ready")

    def work(self, name: str, *, lane: str, path: str) -> ForkedProcess:
        """A worker of a module of its own; it can be called when this returns."""
        (self.folder / f"{name}.py").write_text(CODE.format(lane=lane, path=path))
        process = self._start(name, "worker", f"{name}:shop")

        def ready() -> bool:
            assert process.poll() is None, self.log(name)
            return "worker ready" in self.log(name)

        eventually(ready, f"the worker {name} is ready")
        return process

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def _start(self, name: str, *arguments: str) -> ForkedProcess:
        with (self.folder / f"{name}.log").open("wb") as output:
            process = start_coatcheck(
                *arguments, cwd=self.folder, env=environment(**self._variables), output=output
            )
        self._closing.callback(_end, process)
        return process

    def submit(self, path: str) -> dict[str, Any]:
        answer = self.http.post(f"/api/v1/orgs/acme/services/shop/async{path}", json={})
        assert answer.status_code == 202, answer.text
        ticket: dict[str, Any] = answer.json()
        return ticket

    def status_of(self, path: str) -> int:
        return self.http.post(f"/api/v1/orgs/acme/services/shop/async{path}", json={}).status_code

    def lane_of_next(self, path: str) -> str:
        lane: str = self.http.get(self.submit(path)["poll_url"]).json()["lane"]
        return lane

    def doctor(self) -> list[tuple[str, str, str]]:
        """What it says of services: the verdict, the finding and the hint."""
        ran = self.run("doctor", "--json")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        findings = [json.loads(line) for line in ran.stdout.splitlines()]
        return [
            (each["verdict"], each["found"], each["hint"])
            for each in findings
            if each["subject"] == "services"
        ]


def _end(process: ForkedProcess) -> None:
    if process.poll() is None:
        process.terminate()
    process.wait(LIMIT_SECONDS)


@pytest.fixture
def shop(dsn: str, tmp_path: Path) -> Iterator[ShopDeployment]:
    with ExitStack() as closing:
        yield ShopDeployment(dsn, tmp_path, closing)


def stop(process: ForkedProcess) -> None:
    process.terminate()
    assert process.wait(LIMIT_SECONDS) == 0


def kill(process: ForkedProcess) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(LIMIT_SECONDS)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("end", [stop, kill])
def test_a_canary_comes_and_goes_and_the_api_stays(
    shop: ShopDeployment, end: Callable[[ForkedProcess], None]
) -> None:
    shop.serve()
    shop.work("stable", lane="standard", path="/refund")
    (verdict, _, _) = shop.doctor()[0]
    assert verdict == "ok"
    canary = shop.work("canary", lane="bulk", path="/gift")
    for path in ("/pay", "/refund", "/gift"):
        ended = shop.http.get(shop.submit(path)["poll_url"], params={"wait": 30}).json()
        assert ended["status"] == "completed", path
    assert shop.lane_of_next("/pay") == "bulk"
    said = "live workers publish different definitions of shop.post__pay (lane)"
    assert shop.log("canary").count(said) == 1
    assert said not in shop.log("stable")
    ((verdict, found, hint),) = shop.doctor()
    assert verdict == "warn"
    assert found.startswith(f"{said}; the newest applies, of ")
    assert "as a new version" in hint

    end(canary)
    eventually(lambda: shop.lane_of_next("/pay") == "standard", "the stable definition is back")
    for path in ("/pay", "/refund"):
        ended = shop.http.get(shop.submit(path)["poll_url"], params={"wait": 30}).json()
        assert ended["status"] == "completed", path
    left = shop.submit("/gift")
    explained = shop.http.get(f"{left['poll_url']}/explain").json()
    assert explained["blockers"][0]["kind"] == "no_worker"
    ((verdict, found, hint),) = shop.doctor()
    assert (verdict, found) == ("warn", "no live worker publishes shop.post__gift")
    assert "coatcheck services forget" in hint

    lines = shop.run("services", "list", "--json").stdout.splitlines()
    listed = [json.loads(line) for line in lines]
    by_name = {each["endpoint"]: each for each in listed if each["service"] == "shop"}
    assert {name: each["workers"] for name, each in by_name.items()} == {
        "shop.post__gift": 0,
        "shop.post__pay": 1,
        "shop.post__refund": 1,
    }
    assert "no live worker since" in shop.run("services", "list").stdout

    refused = shop.run("services", "forget", "shop.post__pay")
    assert (refused.returncode, "kept shop.post__pay" in refused.stdout) == (1, True)
    forgotten = shop.run("services", "forget", "shop", "--json")
    assert forgotten.returncode == 0, forgotten.stderr
    assert json.loads(forgotten.stdout) == {
        "forgotten": ["shop.post__gift"],
        "served": ["shop.post__pay", "shop.post__refund"],
    }
    eventually(lambda: shop.status_of("/gift") == 404, "the forgotten endpoint is gone")
    assert shop.http.get(left["poll_url"]).json()["status"] == "queued"
    assert shop.status_of("/pay") == 202
    assert shop.run("services", "forget", "shop.v9").returncode == 1
    assert shop.run("services", "forget", "not a name").returncode == 2
