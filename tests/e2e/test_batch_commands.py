"""`coatcheck batch`, run as a user runs it, against a server and a worker of their own."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from typer.testing import CliRunner

from coatcheck.cli.app import app
from tests.databases import Databases
from tests.e2e.conftest import Served, coatcheck, environment, served
from tests.forked_process import ForkedProcess
from tests.waiting import eventually

pytestmark = pytest.mark.slow

SERVICE = """
import asyncio
from pathlib import Path

from coatcheck import Job, Service

shop = Service("shop")
MENDED = Path(__file__).with_name("mended")


@shop.post("/square", retries=0)
async def square(job: Job, n: int) -> int:
    if n < 0 and not MENDED.exists():
        job.fail("negative", code="negative")
    return n * n


@shop.post("/hold", retries=0)
async def hold(job: Job, gate: str) -> None:
    while not Path(__file__).with_name(gate).exists() and not job.cancel_requested:
        await asyncio.sleep(0.05)
    job.check_cancelled()
"""
TO_SHOP = ("--service", "shop", "--endpoint")


class Shop:
    """A running server, and commands that talk to it."""

    def __init__(self, up: Served) -> None:
        self.folder = up.folder
        self.variables = {
            "COATCHECK_URL": f"http://127.0.0.1:{up.port}",
            "COATCHECK_API_KEY": (up.data / "dev-key").read_text().strip(),
        }

    def batch(
        self, *arguments: str, exit_code: int = 0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        ran = coatcheck("batch", *arguments, cwd=self.folder, **(self.variables | variables))
        assert ran.returncode == exit_code, (ran.stdout, ran.stderr)
        return ran

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def numbers(self, *numbers: int) -> str:
        return self.file("tasks.ndjson", "".join(f'{{"n": {n}}}\n' for n in numbers))

    def shown(self, batch_id: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.batch("status", batch_id, "--json").stdout)
        return shown


@pytest.fixture(scope="module")
def shop(databases: Databases) -> Iterator[Shop]:
    """One for all: a test looks at batches of its own."""
    with served(databases, "shop_of_tests:shop", files={"shop_of_tests.py": SERVICE}) as site:
        yield Shop(site)


def test_a_batch_from_its_list_to_its_results(shop: Shop) -> None:
    ran = shop.batch(
        "submit", shop.numbers(*range(5), -1), *TO_SHOP, "/square", "--watch", exit_code=1
    )
    batch_id, *report = ran.stdout.splitlines()
    assert len(batch_id) == 26
    assert report[0].split() == ["batch", batch_id, "completed"]
    assert "6 tasks, 5 succeeded, 1 failed" in ran.stdout
    last = [line for line in ran.stderr.splitlines() if line.startswith("completed")]
    assert len(last) == 1
    assert "6/6" in last[0]
    assert "1 failed" in last[0]
    assert f"batch rerun {batch_id} --failed" in ran.stderr

    (failed,) = shop.batch("tasks", batch_id, "--status", "failed").stdout.splitlines()
    assert failed.split()[:2] == ["5", "failed"]
    assert failed.endswith("negative: negative")
    lines = shop.batch("tasks", batch_id, "--json").stdout.splitlines()
    results = [json.loads(line)["result"] for line in lines]
    assert results == [0, 1, 4, 9, 16, None]

    (shop.folder / "mended").touch()
    ran = shop.batch("rerun", batch_id, "--failed", "--error-code", "negative", "--watch")
    assert "1 task, 1 succeeded" in ran.stdout
    runs = shop.shown(batch_id)["runs"]
    assert [run["counts"]["total"] for run in runs] == [6, 1]
    again = shop.batch("rerun", batch_id, "--failed", exit_code=2)
    assert again.stderr.startswith("error: ")
    assert "nothing_to_rerun" in again.stderr

    first = runs[0]["id"]
    exported = shop.batch("export", batch_id, "-o", "all.zip", "--run", first).stdout.strip()
    assert exported == "all.zip"
    with zipfile.ZipFile(shop.folder / exported) as archive:
        assert archive.testzip() is None
    assert shop.batch("export", batch_id).stdout.strip() == f"{batch_id}.zip"
    assert (shop.folder / f"{batch_id}.zip").stat().st_size > 0

    assert batch_id in shop.batch("list").stdout
    shop.batch("delete", batch_id)
    gone = shop.batch("status", batch_id, exit_code=2)
    assert len(gone.stderr.splitlines()) <= 2
    assert batch_id not in shop.batch("list").stdout


def test_tasks_come_from_standard_input_and_from_an_array(shop: Shop) -> None:
    options = ["--metadata", "team=search", "--metadata", "a=b=c", "--concurrency", "2"]
    piped = shop.batch(
        *("submit", "-", *TO_SHOP, "/square", "--watch", "--json", *options),
        given='{"n": 1}\n{"custom_id": "two", "input": {"n": 2}}\n',
    )
    shown = json.loads(piped.stdout)
    assert (shown["counts"]["succeeded"], shown["concurrency"]) == (2, 2)
    assert shown["metadata"] == {"team": "search", "a": "b=c"}

    array = shop.file("tasks.json", '[\n  {"n": 3},\n  {"n": 4}\n]\n')
    ran = shop.batch("submit", array, *TO_SHOP, "/square", "--watch", "--idempotency-key", "once")
    first = ran.stdout.split()[0]
    again = shop.batch("submit", array, *TO_SHOP, "/square", "--idempotency-key", "once")
    assert again.stdout.strip() == first
    assert again.stderr == ""
    other = shop.batch("submit", shop.numbers(7), *TO_SHOP, "/square", "--idempotency-key", "once")
    assert other.stdout.strip() == first
    assert "warning" in other.stderr


def test_an_open_batch_is_filled_and_closed(shop: Shop) -> None:
    batch_id = shop.batch("submit", *TO_SHOP, "/square", "--open").stdout.strip()
    shop.batch("add", batch_id, shop.numbers(1, 2, 3))
    ran = shop.batch("close", batch_id, "--watch")
    assert "3 tasks, 3 succeeded" in ran.stdout
    refused = shop.batch("add", batch_id, shop.numbers(4), exit_code=2)
    assert "batch_not_open" in refused.stderr


def test_bad_lines_are_no_success(shop: Shop) -> None:
    tasks = shop.file("tasks.ndjson", '{"n": 1}\nnot json\n')
    ran = shop.batch("submit", tasks, *TO_SHOP, "/square", "--watch", exit_code=1)
    assert "1 invalid" in ran.stdout
    assert "1 invalid line" in ran.stderr


def test_a_list_without_tasks_is_a_dead_letter(shop: Shop) -> None:
    tasks = shop.file("tasks.ndjson", "not json\n")
    ran = shop.batch("submit", tasks, *TO_SHOP, "/square", "--watch", exit_code=1)
    batch_id = ran.stdout.split()[0]
    (letter,) = [line for line in shop.batch("dlq").stdout.splitlines() if batch_id in line]
    redriven = shop.batch("dlq", "--redrive", letter.split()[0])
    assert redriven.stdout == f"Processing {letter.split()[0]} again.\n"


def test_ctrl_c_ends_the_watching_and_not_the_batch(shop: Shop) -> None:
    tasks = shop.file("tasks.ndjson", '{"gate": "opened"}\n' * 3)
    with Terminal(shop, "submit", tasks, *TO_SHOP, "/hold", "--watch") as terminal:
        terminal.wait_until_seen("0/3")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.wait() == 130
        terminal.wait_until_seen("The batch keeps running.")
        assert "Traceback" not in terminal.seen
    batch_id = terminal.output().split()[0]
    assert f"batch status {batch_id} --watch" in terminal.seen
    assert shop.shown(batch_id)["status"] == "running"

    with Terminal(shop, "status", batch_id, "--watch") as again:
        again.wait_until_seen("0/3")
        (shop.folder / "opened").touch()
        assert again.wait() == 0
    assert "3 tasks, 3 succeeded" in again.output()


def test_a_batch_is_cancelled(shop: Shop) -> None:
    tasks = shop.file("tasks.ndjson", '{"gate": "never"}\n' * 3)
    batch_id = shop.batch("submit", tasks, *TO_SHOP, "/hold").stdout.strip()
    shop.batch("cancel", batch_id)
    ran = shop.batch("status", batch_id, "--watch", exit_code=1)
    assert "cancelled" in ran.stdout
    assert "3 cancelled" in ran.stdout


def test_what_cannot_work_is_said_in_a_line(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.folder)
    tasks = shop.numbers(1)
    table = shop.file("tasks.csv", "n\n1\n")
    to = (*TO_SHOP, "/square")
    refusals: list[tuple[list[str], dict[str, str], int, str]] = [
        (["submit", table, *to], {}, 2, "tables are not supported"),
        (["submit", *to], {}, 2, "FILE is missing"),
        (["submit", "absent.ndjson", *to], {}, 2, "absent.ndjson: No such file"),
        (["submit", tasks, *to, "--metadata", "team"], {}, 2, "--metadata needs"),
        (["submit", tasks, *TO_SHOP, "/nothing"], {}, 2, "has no such endpoint"),
        (["submit", tasks, *to, "--lane", "fast"], {}, 2, "lane"),
        (["rerun", "ID", "--failed", "--status", "failed"], {}, 2, "cannot be combined"),
        (["status", "no-such-id"], {}, 2, "not_found"),
        (["export", "no-such-id", "-o", "."], {}, 2, "is a folder"),
        (["status", "x"], {"COATCHECK_API_KEY": "cck_wrong"}, 2, "COATCHECK_API_KEY"),
        (["status", "x"], {"COATCHECK_URL": "http://127.0.0.1:9"}, 1, "no answer from 127.0.0.1:9"),
        (
            ["status", "x"],
            {"COATCHECK_URL": "ftp://example.org"},
            2,
            "invalid server address: it must begin",
        ),
    ]
    for arguments, variables, exit_code, said in refusals:
        ran = CliRunner().invoke(app, ["batch", *arguments], env=shop.variables | variables)
        assert (ran.exit_code, ran.stdout) == (exit_code, ""), (arguments, ran.output)
        assert said in ran.stderr, (arguments, ran.stderr)
        assert ran.stderr.startswith("error: ")
        assert ran.stderr.count(said) == 1, (arguments, ran.stderr)
        assert "Traceback" not in ran.stderr


def test_a_server_on_this_machine_is_shown_the_key_of_the_data_folder(shop: Shop) -> None:
    url = {"COATCHECK_URL": shop.variables["COATCHECK_URL"]}
    data = str(shop.folder / "data")
    found = coatcheck("batch", "list", "--data", data, cwd=shop.folder, **url)
    assert found.returncode == 0, found.stderr
    wrong = shop.file("tasks.ndjson", '{"m": 1}\n')
    submit = ("submit", wrong, *TO_SHOP, "/square", "--watch", "--data", data)
    ran = coatcheck("batch", *submit, cwd=shop.folder, **url)
    assert f"--status failed --data {data}\n" in ran.stderr
    assert f"--failed --watch --data {data}\n" in ran.stderr
    for elsewhere in ("https://example.org", "http://127.0.0.1.example.org"):
        ran = coatcheck("batch", "list", cwd=shop.folder, COATCHECK_URL=elsewhere)
        assert ran.returncode == 2
        assert "no API key\n" in ran.stderr


class Terminal:
    """A command whose stderr is a terminal. A context manager."""

    def __init__(self, shop: Shop, *arguments: str) -> None:
        self.seen = ""
        self._ours, theirs = pty.openpty()
        os.set_blocking(self._ours, False)
        self._stdout = shop.folder / "stdout"
        with self._stdout.open("wb") as output:
            self.process = ForkedProcess(
                "coatcheck.cli",
                ("batch", *arguments),
                cwd=shop.folder,
                env=environment(**shop.variables, TERM="xterm"),
                stdout=output,
                stderr=theirs,
            )
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def output(self) -> str:
        return self._stdout.read_text()

    def wait_until_seen(self, text: str) -> None:
        eventually(lambda: text in self._read(), f"{text!r} on the terminal")

    def wait(self) -> int:
        """Its exit code. What it writes is read meanwhile: a terminal that is full holds it up."""

        def has_ended() -> bool:
            self._read()
            return self.process.poll() is not None

        eventually(has_ended, "its end")
        return self.process.wait()

    def _read(self) -> str:
        with suppress(OSError):  # nothing yet, or nothing more
            self.seen += os.read(self._ours, 65536).decode(errors="replace")
        return self.seen
