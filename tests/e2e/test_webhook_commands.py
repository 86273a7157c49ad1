"""`coatcheck webhooks` and `coatcheck listen`, against a server and a worker of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import Result
from typer.testing import CliRunner

from coatcheck.cli.app import app
from coatcheck.client import Client
from tests.e2e.conftest import COMMAND, Served, Up, environment, free_port
from tests.e2e.test_curl_guide import answers
from tests.markdown import REPOSITORY, Page, pages
from tests.waiting import LIMIT_SECONDS, eventually

pytestmark = pytest.mark.slow


class Post:
    """A running server, and commands that talk to it."""

    def __init__(self, up: Served | Up) -> None:
        self.up = up
        self.folder = up.data.parent
        self.variables = {
            "COATCHECK_URL": f"http://127.0.0.1:{up.port}",
            "COATCHECK_API_KEY": (up.data / "dev-key").read_text().strip(),
        }
        self.client = Client(*self.variables.values())

    def run(self, *arguments: str, exit_code: int = 0, **variables: str) -> Any:
        ran = CliRunner().invoke(app, [*arguments], env=self.variables | variables)
        assert ran.exit_code == exit_code, (arguments, ran.output)
        assert "Traceback" not in ran.output
        return ran

    def webhooks(self, *arguments: str, exit_code: int = 0) -> str:
        output: str = self.run("webhooks", *arguments, exit_code=exit_code).stdout
        return output

    def a_job(self) -> str:
        """The id of one that has completed."""
        job = self.client.submit("demo", "echo", {"message": "hello"}, wait=60)
        assert job.status == "completed"
        return job.id

    def deliveries(self, *options: str) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for line in self.webhooks("deliveries", *options, "--json").splitlines()
        ]

    def until_answering(self, port: int) -> None:
        """Wait for a receiver, which refuses what is not signed."""

        def refused() -> bool:
            with contextlib.suppress(httpx2.HTTPError):
                return httpx2.post(f"http://127.0.0.1:{port}/", trust_env=False).status_code == 400
            return False

        eventually(refused, "the receiver answers")

    @contextlib.contextmanager
    def process(self, name: str, *command: str, **variables: str) -> Iterator[Process]:
        process = Process(self.folder / f"{name}.log", command, self.variables | variables)
        try:
            yield process
        finally:
            process.end()


class Process:
    """A program that runs in the foreground of a terminal of its own."""

    def __init__(self, log: Path, command: tuple[str, ...], variables: dict[str, str]) -> None:
        self.log = log
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=environment(**variables) | {"PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.log.read_text()

    def wait_until_said(self, text: str) -> None:
        def seen() -> bool:
            if text in self.said():
                return True
            assert self.popen.poll() is None, f"it ended:\n{self.said()}"
            return False

        eventually(seen, f"{text!r} is said:\n{self.said()}")

    def press_ctrl_c(self) -> int:
        os.killpg(self.popen.pid, signal.SIGINT)
        return self.popen.wait(LIMIT_SECONDS)

    def end(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait(LIMIT_SECONDS)


@pytest.fixture(scope="module")
def post(shared_server: Served) -> Iterator[Post]:
    """One for all: a test takes away the endpoints that it has made."""
    made = Post(shared_server)
    with made.client:
        yield made


@contextlib.contextmanager
def receiver(post: Post, port: int, secret: str) -> Iterator[Process]:
    """The example of a receiver."""
    program = str(REPOSITORY / "examples" / "webhook_receiver.py")
    with post.process(
        f"receiver-{port}", sys.executable, program, str(port), WEBHOOK_SECRET=secret
    ) as process:
        post.until_answering(port)
        yield process


def test_an_endpoint_by_commands_and_the_example_of_a_receiver(post: Post) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/hook"
    made = json.loads(
        post.webhooks("create", url, "--events", "job.completed,job.failed", "--json")
    )
    endpoint = made["id"]
    assert made["events"] == ["job.completed", "job.failed"]
    assert post.webhooks("secret", endpoint).strip() == made["secret"]
    assert endpoint in post.webhooks("list")

    assert "the connection failed" in post.webhooks("test", endpoint, exit_code=1)
    rotated = post.webhooks("rotate", endpoint).strip()
    assert rotated != made["secret"]
    with receiver(post, port, f"{rotated} {made['secret']}") as process:
        assert post.webhooks("test", endpoint).startswith("delivered: HTTP 204")
        process.wait_until_said("webhook.test")
        job = post.a_job()
        process.wait_until_said(f"job.completed {job}")

        assert "paused" in post.webhooks("pause", endpoint)
        kept = post.a_job()
        (delivery,) = post.deliveries("--endpoint", endpoint, "--job", kept)
        assert (delivery["status"], delivery["paused"]) == ("pending", True)
        assert "active" in post.webhooks("resume", endpoint)
        process.wait_until_said(f"job.completed {kept}")

        def taken() -> list[dict[str, Any]]:
            return post.deliveries("--job", kept, "--status", "delivered", "--since", "1h")

        (delivery,) = eventually(taken, "it is noted")
        assert delivery["id"] in post.webhooks("replay", delivery["id"])
        eventually(taken, "it was sent again")
        said = process.said()
        assert said.count(kept) == 1, "what was seen is passed over"
        span = ("--since", "1h", "--endpoint", endpoint)
        none = post.webhooks("replay", *span, "--status", "exhausted")
        assert none == "Resending 0 deliveries.\n"
        again = post.webhooks("replay", "--since", "1h", "--status", "delivered", "--json")
        assert json.loads(again)["replayed"] >= 2
    assert post.webhooks("delete", endpoint) == f"Deleted {endpoint}.\n"
    assert endpoint not in post.webhooks("list")


def test_what_is_listened_for_is_forwarded_until_ctrl_c(post: Post) -> None:
    port = free_port()
    command = (*COMMAND, "listen", "--forward-to", f"127.0.0.1:{port}/hook", "--print-secret")
    with post.process("listen", *command, "--events", "job.*") as listening:
        listening.wait_until_said("whsec_")
        assert "listening for" in listening.said()
        secret = next(line for line in listening.said().splitlines() if line.startswith("whsec_"))
        job = post.a_job()
        listening.wait_until_said(f"job.completed  {job}  the connection failed")
        with receiver(post, port, secret) as process:
            job = post.a_job()
            process.wait_until_said(f"job.dispatching {job}")
            process.wait_until_said(f"job.completed {job}")
            listening.wait_until_said(f"job.completed  {job}  204")
        (endpoint,) = post.client.webhooks.list()
        assert endpoint.pulled
        assert listening.press_ctrl_c() == 0
        assert "Traceback" not in listening.said()
    assert post.client.webhooks.list() == ()


@pytest.mark.crash
def test_listening_goes_on_after_the_server_was_killed(start_up: Callable[..., Up]) -> None:
    up = start_up()
    up.wait_until_ready()
    post = Post(up)
    port = free_port()
    command = (*COMMAND, "listen", "--forward-to", f"http://127.0.0.1:{port}/")
    with post.client, post.process("listen-on", *command) as listening:
        listening.wait_until_said("Ctrl-C to stop")
        victim = up.child("serve")
        assert victim is not None
        victim.kill()
        listening.wait_until_said("; retrying")
        eventually(lambda: up.ready_status() == 200, "ready again")
        listening.wait_until_said("the server is back")
        job = post.a_job()
        listening.wait_until_said(job)
        assert listening.press_ctrl_c() == 0
        assert "Traceback" not in listening.said()


def guide() -> Page:
    (page,) = [page for page in pages("docs/how-to") if page.path.stem == "webhooks"]
    return page


def test_the_receiver_for_node_takes_what_is_signed_and_nothing_else(post: Post) -> None:
    port = free_port()
    (program,) = guide().blocks("javascript")
    file = post.folder / "receiver.mjs"
    file.write_text(program.text.replace("9000", str(port)))
    endpoint = post.client.webhooks.create(f"http://127.0.0.1:{port}/hook")
    assert endpoint.secret is not None
    with post.process("node", "node", str(file), endpoint.secret) as process:
        post.until_answering(port)
        assert post.webhooks("test", endpoint.id).startswith("delivered: HTTP 204")
        job = post.a_job()
        process.wait_until_said(f"job.completed {job}")
    post.client.webhooks.delete(endpoint)


def test_every_command_of_the_guide_works(post: Post, tmp_path: Path) -> None:
    receiving = str(free_port())
    page = guide()
    (program,) = page.blocks("python")
    (tmp_path / "receiver.py").write_text(program.text.replace("9000", receiving))
    named, made, started, tried, handed_in, shown, replayed, paused, rotated, taken, alone = (
        block.text.replace("9000", receiving) for block in page.blocks("sh")
    )
    until = "until {}; do sleep 0.1; done\n"
    answering = until.format(f"curl -so answer http://127.0.0.1:{receiving}/ -d x")
    log = "$COATCHECK_URL/api/v1/orgs/default/webhooks/deliveries"
    noted = until.format(
        f'curl -s "{log}?job_id=$JOB" -H "X-Api-Key: $COATCHECK_API_KEY" | grep -q delivered'
    )
    again = until.format('[ $(grep -c "$JOB" received.txt) -ge 2 ]')
    steps = ["trap 'kill $(jobs -p)' EXIT\n" + named, made, started + answering, tried]
    steps += [handed_in + noted, shown, replayed + again, paused, rotated, taken, alone]
    *_, test, _, log, sent, steered, new, gone, single = answers(post.up, tmp_path, steps)
    assert test == "delivered: HTTP 204\n"
    assert "job.completed" in log
    assert "delivered" in log
    assert sent.splitlines()[-1] == "Resending 0 deliveries."
    assert [line.split()[1] for line in steered.splitlines()] == ["paused", "active"]
    assert new.startswith("whsec_")
    assert gone.startswith("Deleted ")
    assert "job_id" in json.loads(single)
    received = (tmp_path / "received.txt").read_text().splitlines()
    assert [line.split()[0] for line in received[:2]] == ["webhook.test", "job.completed"]


def test_what_cannot_work_is_said_in_a_line(post: Post) -> None:
    url = "http://127.0.0.1:9/"
    unknown = "01JAV8M2Q0XW3N5T7R9Y1B3D5F"
    refusals: list[tuple[list[str], dict[str, str], int, str]] = [
        (["webhooks", "create", "https://10.0.0.1/"], {}, 2, "url_forbidden"),
        (["webhooks", "create", url, "--events", "job.gone"], {}, 2, "must be one of"),
        (["webhooks", "pause", unknown], {}, 2, "not_found"),
        (["webhooks", "replay"], {}, 2, "give either MESSAGE"),
        (["webhooks", "replay", "msg_x", "--since", "1h"], {}, 2, "give either MESSAGE"),
        (["webhooks", "replay", "msg_x", "--status", "delivered"], {}, 2, "need --since"),
        (["webhooks", "deliveries", "--status", "sent"], {}, 2, "must be one of"),
        (["webhooks", "list"], {"COATCHECK_API_KEY": "cck_wrong"}, 2, "COATCHECK_API_KEY"),
        (["webhooks", "list", "--org", ".."], {}, 2, "org must be a name"),
        (["listen", "--forward-to", "ftp://x"], {}, 2, "is not a valid URL"),
        (["listen", "--forward-to", "http://x:port"], {}, 2, "is not a valid URL"),
        (["listen", "--forward-to", url, "--events", "nothing"], {}, 2, "must be one of"),
        (
            ["listen", "--forward-to", url],
            {"COATCHECK_URL": "http://127.0.0.1:9"},
            1,
            "no answer from 127.0.0.1:9",
        ),
    ]
    for arguments, variables, exit_code, said in refusals:
        ran: Result = post.run(*arguments, exit_code=exit_code, **variables)
        assert ran.stdout == "", (arguments, ran.output)
        assert said in ran.stderr, (arguments, ran.stderr)
        assert ran.stderr.startswith("error: ")
    usage = post.run("webhooks", "deliveries", "--since", "soon", exit_code=2)
    assert "such as 2h, 7d" in usage.stderr
