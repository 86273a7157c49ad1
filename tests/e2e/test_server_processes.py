"""`coatcheck serve --processes N`: several processes on one port, as one server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from coatcheck import Job, Service
from coatcheck.domain import ids
from coatcheck.domain.tenants import RateLimit
from tests.child_process import ChildProcess
from tests.deployment import Deployment, bearer
from tests.e2e.conftest import Up, coatcheck
from tests.ports import free_port
from tests.waiting import LIMIT_SECONDS, eventually, eventually_async

LONG = 500_000_000
"""A window from 2017 to 2033: no test sees its end by chance."""
SUBMIT = "/api/v1/orgs/default/services/hello/async/greet"
ME = "/api/v1/me"

hello = Service("hello")


@hello.post("/greet")
async def greet(job: Job, name: str) -> str:
    return f"Hello, {name}!"


@hello.post("/hold")
async def hold(job: Job) -> None:
    """Runs until it is cancelled."""
    await asyncio.Event().wait()


class SharedPort:
    """A server of several processes, and who calls it."""

    def __init__(self, process: ChildProcess, port: int, key: str) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.key = key
        self.supervisor = psutil.Process(process.pid)

    def processes(self) -> list[psutil.Process]:
        return self.supervisor.children(recursive=True)

    def said(self, text: str) -> int:
        return self.process.log.count(text)

    async def until_said(self, text: str, times: int = 1) -> None:
        async def look() -> bool:
            return self.said(text) >= times

        await eventually_async(look, f"{text!r} is logged {times} times")

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[httpx2.AsyncClient]:
        """A client with a connection of its own, which one of the processes accepts."""
        async with httpx2.AsyncClient(
            base_url=self.url, headers=bearer(self.key), trust_env=False, timeout=LIMIT_SECONDS
        ) as client:
            yield client

    async def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """A request on a connection of its own."""
        async with self.connection() as client:
            return await client.request(method, path, **more)

    async def ask_until_both_have_answered(self, path: str) -> list[httpx2.Response]:
        """Requests on connections of their own, until each of two processes has answered one."""
        answers: list[httpx2.Response] = []

        async def ask() -> bool:
            answers.extend(await asyncio.gather(*(self.ask("GET", path) for _ in range(10))))
            return len({server_of(each) for each in answers}) == 2

        await eventually_async(ask, "two processes have answered")
        return answers

    async def metrics(self, path: str = "/metrics") -> dict[tuple[str, frozenset[str]], float]:
        """What is shown, by name and by labels as ``name=value``."""
        shown = await self.ask("GET", path)
        return {
            (sample.name, frozenset(f"{k}={v}" for k, v in sample.labels.items())): sample.value
            for family in text_string_to_metric_families(shown.text)
            for sample in family.samples
        }


def server_of(answer: httpx2.Response) -> str:
    """The process that answered: its part of the request's id."""
    return str(answer.headers["X-Request-Id"]).partition("-")[0]


Start = Callable[..., Awaitable[SharedPort]]


@pytest.fixture
async def site(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path, servers=0) as deployment:
        await deployment.create_org("default")
        yield deployment


@pytest.fixture
async def start(site: Deployment) -> Start:
    """Starts a server of two processes, and returns when both are ready."""

    async def started(*, key: str = "", **settings: str) -> SharedPort:
        port = free_port()
        process = site.start_process(
            *("coatcheck.cli", "serve", "--port", str(port), "--processes", "2"),
            role="serve",
            **settings,
        )
        shared = SharedPort(process, port, key or await site.create_key())
        await shared.until_said(f"serving on http://127.0.0.1:{port} with 2 processes")
        return shared

    return started


async def test_every_process_answers_on_the_one_port(start: Start) -> None:
    shared = await start()
    assert len(shared.processes()) == 2
    answers = await shared.ask_until_both_have_answered("/readyz")
    assert {each.status_code for each in answers} == {200}
    assert shared.supervisor.num_threads() == 1, "it forks"


async def test_the_metrics_of_any_process_are_those_of_all(start: Start) -> None:
    shared = await start()
    answers = await shared.ask_until_both_have_answered(ME)
    of_route = frozenset({"method=GET", f"route={ME}", "status=200"})
    counted = "coatcheck_http_requests_total", of_route
    scraped: list[float] = []

    async def both_show_all() -> bool:
        shown = await shared.metrics()
        scraped.append(shown.get(counted, 0.0))
        assert scraped[-1] <= len(answers)
        return scraped[-1] == len(answers) and scraped[-1] == scraped[-2:][0]

    await eventually_async(both_show_all, "what both have answered is counted")
    assert scraped == sorted(scraped), "a count never goes back"
    assert (await shared.metrics())["coatcheck_processes", frozenset({"kind=serve"})] == 2

    by_process: dict[str, float] = {}

    async def each_shows_its_own() -> bool:
        shown = await shared.metrics("/metrics?scope=process")
        (process,) = {
            label for _, labels in shown for label in labels if label.startswith("process=")
        }
        assert all(process in labels for _, labels in shown)
        by_process[process] = shown["coatcheck_http_requests_total", of_route | {process}]
        return len(by_process) == 2

    await eventually_async(each_shows_its_own, "each process has shown its own metrics")
    assert by_process.keys() == {"process=1", "process=2"}
    assert sum(by_process.values()) == len(answers)


async def test_a_rate_holds_over_all_processes(start: Start, site: Deployment) -> None:
    shared = await start(key=await site.create_key(rate=RateLimit(20, LONG)))
    answers = await shared.ask_until_both_have_answered(ME)
    while len(answers) <= 30:
        answers.append(await shared.ask("GET", ME))
    assert Counter(each.status_code for each in answers) == {200: 20, 429: len(answers) - 20}


async def test_held_answers_are_bounded_over_all_processes(start: Start, site: Deployment) -> None:
    await site.start_worker(hello)
    shared = await start(held_answers_per_key="4")
    made = await shared.ask("POST", SUBMIT.replace("greet", "hold"), json={})
    events = f"/api/v1/orgs/default/services/hello/jobs/{made.json()['job_id']}/events"
    held: Counter[str] = Counter()
    refusing: set[str] = set()
    async with AsyncExitStack() as streams:

        async def hold_until_both_refuse() -> bool:
            client = await streams.enter_async_context(shared.connection())
            stream = await streams.enter_async_context(client.stream("GET", events))
            if stream.status_code == 429:
                refusing.add(server_of(stream))
            else:
                assert stream.status_code == 200
                held[server_of(stream)] += 1
            return len(refusing) == 2

        await eventually_async(hold_until_both_refuse, "both processes have refused")
        assert sorted(held.values()) == [2, 2]


@pytest.mark.crash
async def test_a_killed_process_loses_nothing_that_was_acknowledged_and_is_replaced(
    start: Start, site: Deployment
) -> None:
    await site.start_worker(hello)
    shared = await start()
    acknowledged: list[str] = []
    is_over = asyncio.Event()

    async def call() -> None:
        while not is_over.is_set():
            try:
                async with shared.connection() as client:
                    while not is_over.is_set():
                        answer = await client.post(SUBMIT, json={"name": "Ada"})
                        assert answer.status_code == 202
                        acknowledged.append(answer.json()["job_id"])
            except httpx2.TransportError:
                continue  # its process was killed: the next connection finds another one

    async def acknowledged_more_than(jobs: int) -> None:
        async def look() -> bool:
            return len(acknowledged) > jobs

        await eventually_async(look, f"more than {jobs} jobs are acknowledged")

    callers = [asyncio.create_task(call()) for _ in range(8)]
    for times in (1, 2):
        await acknowledged_more_than(len(acknowledged) + 50)
        victim = shared.processes()[0]
        victim.kill()
        await shared.until_said("was ended by signal 9", times)
        await acknowledged_more_than(len(acknowledged) + 50)
        await shared.until_said("is ready", 2 + times)
    is_over.set()
    await asyncio.gather(*callers)
    stored = await site.sql.fetchval(
        "SELECT count(*) FROM jobs WHERE id = ANY($1::uuid[])",
        [ids.from_text(job) for job in acknowledged],
    )
    assert stored == len(set(acknowledged)) == len(acknowledged)
    assert len(shared.processes()) == 2
    await shared.ask_until_both_have_answered("/readyz")

    async def restarts_are_counted() -> bool:
        shown = await shared.metrics()
        return shown["coatcheck_server_process_restarts_total", frozenset()] == 2

    await eventually_async(restarts_are_counted, "both restarts are counted")


@pytest.mark.parametrize("told", ["the supervisor", "everybody"])
async def test_sigterm_ends_all_processes_and_finishes_open_requests(
    start: Start, site: Deployment, told: str
) -> None:
    await site.start_worker(hello)
    shared = await start(drain_seconds="20")
    made = await shared.ask("POST", SUBMIT.replace("greet", "hold"), json={})
    events = f"/api/v1/orgs/default/services/hello/jobs/{made.json()['job_id']}/events"
    async with AsyncExitStack() as streams:
        opened = [
            await streams.enter_async_context(
                (await streams.enter_async_context(shared.connection())).stream("GET", events)
            )
            for _ in range(6)
        ]
        processes = shared.processes()
        if told == "everybody":
            for each in processes:  # as systemd does
                each.terminate()
        shared.process.interrupt()
        for stream in opened:
            assert "event: reconnect" in (await stream.aread()).decode()
    assert await shared.process.exit() == 0
    assert not [each for each in processes if each.is_running()]
    with pytest.raises(httpx2.ConnectError):
        await shared.ask("GET", "/healthz")
    assert "Traceback" not in shared.process.log


async def test_a_second_signal_ends_all_processes_at_once(start: Start, site: Deployment) -> None:
    await site.start_worker(hello)
    shared = await start(drain_seconds="3600")
    processes = shared.processes()
    for each in processes:
        each.suspend()  # so that neither comes to its end before the second signal
    shared.supervisor.send_signal(signal.SIGINT)
    await shared.until_said("received SIGINT; stopping")
    shared.supervisor.send_signal(signal.SIGINT)
    assert await shared.process.exit() == 128 + signal.SIGINT
    assert not [each for each in processes if each.is_running()]


async def test_a_process_that_does_not_end_in_its_grace_time_is_killed(start: Start) -> None:
    shared = await start(drain_seconds="0")
    stuck, well = shared.processes()
    stuck.suspend()
    assert await shared.process.terminate() == 1
    assert not stuck.is_running()
    assert not well.is_running()
    assert "did not stop in time; killing it" in shared.process.log


@pytest.mark.crash
async def test_no_process_outlives_a_supervisor_that_was_killed(start: Start) -> None:
    shared = await start()
    processes = shared.processes()
    assert len(processes) == 2
    await shared.process.kill()

    async def all_have_ended() -> bool:
        return not [each for each in processes if each.is_running() and not is_zombie(each)]

    await eventually_async(all_have_ended, "its processes end")
    with pytest.raises(httpx2.ConnectError):
        await shared.ask("GET", "/healthz")


def is_zombie(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


async def test_a_process_that_is_stopped_does_not_stop_the_port(start: Start) -> None:
    shared = await start()
    paused, _ = shared.processes()
    paused.suspend()
    answers = [await shared.ask("GET", "/healthz") for _ in range(20)]
    assert [each.status_code for each in answers] == [200] * 20
    paused.resume()
    await shared.ask_until_both_have_answered("/healthz")


@pytest.mark.parametrize(
    ("processes", "why"), [("0", "COATCHECK_PROCESSES"), ("65", "1 to 64"), ("two", "--processes")]
)
def test_an_impossible_number_of_processes_is_refused(
    processes: str, why: str, tmp_path: Path
) -> None:
    ran = coatcheck(
        *("serve", "--processes", processes),
        cwd=tmp_path,
        COATCHECK_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none",
        COATCHECK_KEY_PEPPER="p" * 32,
    )
    assert ran.returncode == 2
    assert why in ran.stderr
    assert "Traceback" not in ran.stderr


def test_processes_that_cannot_start_end_the_server_with_their_exit_code(tmp_path: Path) -> None:
    ran = coatcheck(
        *("serve", "--processes", "2", "--port", str(free_port())),
        cwd=tmp_path,
        COATCHECK_DATABASE_URL=f"postgresql://me:hunter2@127.0.0.1:{free_port()}/x",
        COATCHECK_BLOB_URL=(tmp_path / "blobs").as_uri(),
        COATCHECK_KEY_PEPPER="p" * 32,
    )
    assert ran.returncode == 1
    assert "error: PostgreSQL cannot be reached" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "hunter2" not in ran.stderr


@pytest.mark.slow
@pytest.mark.crash
def test_up_runs_a_server_of_several_processes_and_takes_it_along(
    start_up: Callable[..., Up],
) -> None:
    up = start_up(COATCHECK_PROCESSES="2")
    up.wait_until_ready()
    server = up.child("serve")
    assert server is not None
    assert len(server.children()) == 2
    of_server = [server, *server.children()]
    os.kill(up.process.pid, signal.SIGKILL)
    up.process.wait(LIMIT_SECONDS)
    eventually(
        lambda: not [each for each in of_server if each.is_running() and not is_zombie(each)],
        "the server's processes end",
    )
