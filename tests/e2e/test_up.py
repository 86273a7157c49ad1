from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from coatcheck.db.embedded import EmbeddedPostgres
from tests.conftest import copy_first_boot
from tests.databases import run
from tests.e2e.conftest import COMMAND, Up, coatcheck, environment, free_port
from tests.products.graphs.archives import form, zipped
from tests.waiting import LIMIT_SECONDS, eventually

StartUp = Callable[..., Up]


def submit(up: Up, *arguments: str) -> dict[str, Any]:
    ran = coatcheck("submit", *arguments, "--data", str(up.data), cwd=up.data.parent)
    assert ran.returncode == 0, ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def echo(up: Up, message: str) -> dict[str, Any]:
    return submit(up, "demo.post__echo", json.dumps({"message": message}), "--wait")


def look_up(up: Up, job_id: str) -> dict[str, Any]:
    ran = coatcheck("job", job_id, "--data", str(up.data), cwd=up.data.parent)
    assert ran.returncode == 0, ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def assert_all_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=LIMIT_SECONDS)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


async def test_a_folder_of_a_development_version_is_named_as_what_to_remove(
    start_up: StartUp, data_root: Path
) -> None:
    data = data_root / "data"
    copy_first_boot(data)
    with EmbeddedPostgres(data) as postgres:
        await run(postgres.dsn, "CREATE TABLE coatcheck_migrations (name text PRIMARY KEY)")
    up = start_up()
    assert up.process.wait(LIMIT_SECONDS) == 2
    assert f"the database in {data} was made by a development version" in up.said()
    assert "Remove that folder to begin anew" in up.said()
    assert "Traceback" not in up.said()


@pytest.mark.slow
def test_up_runs_a_job_stops_without_a_trace_and_keeps_the_job(start_up: StartUp) -> None:
    up = start_up(from_nothing=True)
    up.wait_until_ready()
    assert up.ready_status() == 200
    assert "warning: webhooks may be sent to this machine" in up.said()

    tried = subprocess.run(
        up.first_command(),
        cwd="/",
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert tried.returncode == 0, tried.stderr
    job = json.loads(tried.stdout)
    assert job["state"] == "completed"
    assert job["result"] == {"message": "hello"}

    processes = up.everything()
    assert len(processes) > 2
    assert up.stop() == 0
    assert_all_gone(processes)
    said = up.said()
    steps = ["stopping the worker", "stopping the API server", "stopping PostgreSQL", "stopped"]
    assert sorted(steps, key=said.rindex) == steps
    assert "killing" not in said

    again = start_up(port=up.port)
    again.wait_until_ready()
    assert look_up(again, job["id"]) == job
    assert echo(again, "and on")["result"] == {"message": "and on"}
    assert (up.data / "dev-key").read_text().strip() not in again.said()
    assert f"in {up.data / 'dev-key'}" in again.said()


@pytest.mark.slow
@pytest.mark.crash
def test_whatever_dies_is_started_again(start_up: StartUp) -> None:
    up = start_up()
    up.wait_until_ready()

    for name, words in (("worker", "the worker exited"), ("serve", "the API server exited")):
        victim = eventually(lambda name=name: up.child(name), f"{name} runs")
        victim.kill()
        up.wait_until_said(f"{words} (killed by SIGKILL)")
        eventually(
            lambda name=name, victim=victim: (found := up.child(name)) and found != victim,
            f"another {name} runs",
        )
    eventually(lambda: up.ready_status() == 200, "ready again")
    assert echo(up, "still here")["state"] == "completed"

    postgres = up.postgres()
    postgres.kill()
    up.wait_until_said("PostgreSQL is running again")
    eventually(lambda: up.ready_status() == 200, "ready after PostgreSQL was killed")
    assert echo(up, "recovered")["state"] == "completed"


@pytest.mark.slow
@pytest.mark.crash
def test_a_killed_supervisor_takes_its_children_along_and_the_next_one_adopts_the_database(
    start_up: StartUp,
) -> None:
    up = start_up()
    up.wait_until_ready()
    job = echo(up, "before")
    children = [up.child("worker"), up.child("serve")]
    assert None not in children
    postgres = up.postgres()

    up.process.send_signal(signal.SIGKILL)
    up.process.wait(LIMIT_SECONDS)
    assert_all_gone([child for child in children if child is not None])
    assert postgres.is_running()

    again = start_up(port=up.port)
    again.wait_until_ready()
    assert again.postgres() == postgres
    assert look_up(again, job["id"]) == job
    assert echo(again, "after")["state"] == "completed"
    assert again.stop() == 0
    assert_all_gone([postgres])


@pytest.mark.slow
def test_ctrl_c_puts_a_running_job_back_and_a_second_one_ends_at_once(start_up: StartUp) -> None:
    up = start_up()
    up.wait_until_ready()
    job = submit(up, "demo.post__slow", '{"seconds": 3600}')
    eventually(lambda: look_up(up, job["id"])["state"] == "processing", "the job runs")
    processes = up.everything()

    up.press_ctrl_c()
    up.wait_until_said("stopping the worker")
    up.press_ctrl_c()
    assert up.process.wait(LIMIT_SECONDS) == 130
    assert "killing all processes" in up.said()
    assert_all_gone(processes)


@pytest.mark.slow
def test_the_metrics_of_the_worker_show_at_the_control_plane(shared_up: Up) -> None:
    echo(shared_up, "counted")

    def finished() -> bool:
        text = httpx2.get(f"http://127.0.0.1:{shared_up.port}/metrics", trust_env=False).text
        return (
            'coatcheck_jobs_finished_total{endpoint="demo.post__echo",state="completed"} 1.0'
            in text
        )

    eventually(finished, "the finished job is counted")


class Terminal:
    """What its keyboard sends, and what its programs write to."""

    def __init__(self, keyboard: int, screen: int) -> None:
        self.keyboard = keyboard
        self.screen = screen
        self._shown = b""

    def run(self, *arguments: str, cwd: Path) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=cwd,
            env=environment(TERM="xterm"),
            stdin=self.screen,
            stdout=self.screen,
            stderr=self.screen,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(self.screen)
        os.set_blocking(self.keyboard, False)
        return process

    def shows(self, text: str) -> bool:
        with suppress(BlockingIOError, OSError):
            while read := os.read(self.keyboard, 65536):
                self._shown += read
        return text in self._shown.decode(errors="replace")

    def close(self) -> None:
        with suppress(OSError):
            os.close(self.keyboard)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    keyboard, screen = pty.openpty()
    opened = Terminal(keyboard, screen)
    yield opened
    opened.close()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["Ctrl-C", "the window is closed"])
def test_in_a_terminal_it_ends_by_ctrl_c_and_with_the_window(
    data_root: Path, terminal: Terminal, ending: str
) -> None:
    data = data_root / "data"
    copy_first_boot(data)
    process = terminal.run("up", "--data", str(data), "--port", str(free_port()), cwd=data_root)
    eventually(lambda: terminal.shows("Ctrl-C stops everything."), "it is ready")
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) > 2
    if ending == "Ctrl-C":
        os.write(terminal.keyboard, b"\x03")
        eventually(lambda: terminal.shows("stopping PostgreSQL"), "it stops")
    else:
        terminal.close()
    assert process.wait(LIMIT_SECONDS) == 0
    assert_all_gone(children)


def test_a_taken_port_is_said_before_anything_is_started(
    start_up: StartUp, data_root: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        up = start_up(port=taken.getsockname()[1], from_nothing=True)
        assert up.process.wait(LIMIT_SECONDS) == 1
    assert f"error: cannot listen on 127.0.0.1 port {up.port}: " in up.said()
    assert "--port" in up.said()
    assert "Traceback" not in up.said()
    assert not up.data.exists()


def test_wrong_settings_are_said_before_anything_is_started(data_root: Path) -> None:
    ran = coatcheck(
        "up",
        "--data",
        str(data_root / "data"),
        cwd=data_root,
        COATCHECK_PORT="http",
        COATCHECK_LOG_LEVEL="loud",
    )
    assert ran.returncode == 2
    assert "COATCHECK_PORT is 'http'" in ran.stderr
    assert "COATCHECK_LOG_LEVEL is 'loud'" in ran.stderr
    assert not (data_root / "data").exists()


@pytest.mark.slow
def test_a_service_that_cannot_be_loaded_ends_it_with_the_reason(
    start_up: StartUp, data_root: Path
) -> None:
    (data_root / "broken.py").write_text("import nothing_of_that_name\n")
    up = start_up("broken:service")
    assert up.process.wait(LIMIT_SECONDS) == 2
    assert "cannot load broken:service: ModuleNotFoundError" in up.said()
    assert "Traceback" not in up.said()
    assert "restarting" not in up.said()
    assert not (up.data / "pg" / "postmaster.pid").exists()


def test_a_module_that_there_is_none_of_is_said_with_its_name(data_root: Path) -> None:
    nowhere = f"postgresql://127.0.0.1:{free_port()}/x"
    ran = coatcheck("worker", "missing:service", cwd=data_root, COATCHECK_DATABASE_URL=nowhere)
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: 'missing:service': no module 'missing' in ")
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_a_data_folder_has_one_owner_at_a_time(shared_up: Up) -> None:
    second = Up(shared_up.data.parent)
    assert second.process.wait(LIMIT_SECONDS) == 1
    assert f"{second.data} is in use by process {shared_up.process.pid}" in second.said()
    assert "stopp" not in second.said()  # it would read as if the first were stopped
    assert shared_up.ready_status() == 200


@pytest.mark.slow
def test_a_users_own_service_is_run_from_the_folder_it_is_in(
    start_up: StartUp, data_root: Path
) -> None:
    (data_root / "mine.py").write_text(
        "from coatcheck import Service\n"
        "sums = Service('sums')\n"
        "@sums.post('/add')\n"
        "def add(a: int, b: int) -> int:\n"
        "    return a + b\n"
    )
    up = start_up("mine:sums")
    up.wait_until_ready()
    assert submit(up, "sums.post__add", '{"a": 2, "b": 3}', "--wait")["result"] == 5


@pytest.mark.slow
def test_a_blob_container_that_was_named_is_used(start_up: StartUp, tmp_path: Path) -> None:
    named = tmp_path / "elsewhere"
    up = start_up(COATCHECK_BLOB_URL=named.as_uri())
    up.wait_until_ready()
    assert str(named) in up.said()
    answer = httpx2.post(
        f"http://127.0.0.1:{up.port}/v1/graphs/call",
        params={"wait": 60},
        files=form(zipped({"large.py": "def f(): return f()\n" * 4_000})),
        headers={
            "Authorization": f"Bearer {(up.data / 'dev-key').read_text().strip()}",
            "Idempotency-Key": "k",
        },
        timeout=90,
        trust_env=False,
    )
    assert answer.json()["status"] == "completed"
    assert [path for path in (named / "artifacts").rglob("*") if path.is_file()]
    assert not [path for path in (up.data / "blobs").rglob("*") if path.is_file()]


def test_a_folder_where_nothing_runs_is_said_with_what_to_do(data_root: Path) -> None:
    ran = coatcheck("submit", "demo.post__echo", "--data", str(data_root / "data"), cwd=data_root)
    assert ran.returncode == 1
    assert "coatcheck up" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_version_is_the_packages(data_root: Path) -> None:
    from coatcheck import __version__

    ran = coatcheck("--version", cwd=data_root)
    assert ran.stdout == f"coatcheck {__version__}\n"
    assert os.linesep not in ran.stderr
