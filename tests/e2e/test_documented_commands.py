"""The commands of the README, the tutorial and some guides, run as they stand there, on one `up`.

It is started as all of these pages together say: with their services and their settings. Ports and
ids are this run's; what `make` would run is run by itself, as `make --dry-run` says it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import make_open_folder
from tests.e2e.conftest import SOURCE, Up, free_port, running_up
from tests.e2e.test_curl_guide import answers
from tests.e2e.test_documented_programs import assert_like
from tests.markdown import REPOSITORY, Page
from tests.shell_variables import assigned
from tests.waiting import LIMIT_SECONDS, eventually

pytestmark = pytest.mark.slow

README = Page(REPOSITORY / "README.md")
TUTORIAL = Page(REPOSITORY / "docs/tutorial/first-service.md")
JWTS = Page(REPOSITORY / "docs/how-to/use-jwts.md")
HTTP_SERVICE = Page(REPOSITORY / "docs/how-to/register-an-http-service.md")
ON_A_REMOTE = Page(REPOSITORY / "docs/how-to/run-functions-on-a-remote.md")
TRACE = Page(REPOSITORY / "docs/how-to/trace.md")
CLIENTS = [
    Page(REPOSITORY / "docs/how-to/use-the-python-client.md"),
    Page(REPOSITORY / "docs/how-to/use-the-typescript-client.md"),
]

DEMO = "coatcheck.cli.demo:demo"  # what an `up` runs that is told of no service
SERVICES = ("my_module:docs", "examples.hello:hello", "examples.documents:documents", DEMO)
A_TICKET = "01M7GGZ4SXSMP8DETS1V6JP1ZR"
A_DATABASE = "postgresql://coatcheck@/coatcheck?host=...&port=5432"
A_SECRET = "the secret, of 32 characters or more"


def steps(page: Page) -> list[str]:
    return [block.text for block in page.blocks("sh")]


def made(command: str) -> list[str]:
    """The last command that ``make ...`` would run."""
    of_make = {"MFLAGS", "ARGS"}  # who ran these tests by `make test ARGS=...` meant the tests
    inherited = {k: v for k, v in os.environ.items() if "MAKE" not in k and k not in of_make}
    *_, last = subprocess.run(
        ["bash", "-c", re.sub(r"\bmake ", "make --dry-run --no-print-directory ", command)],
        cwd=REPOSITORY,
        env=inherited,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return shlex.split(last)


class Analysis(BaseHTTPRequestHandler):
    """Somebody's own http service."""

    seen: list[tuple[str, str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, self.headers["Authorization"], json.loads(body)))
        answer = b'{"pages": 2}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@dataclass(frozen=True)
class DocumentedUp:
    """The `up`, and what its pages expect beside it."""

    up: Up
    folder: Path
    variables: dict[str, str]
    analysis_port: int
    remote_port: int
    collector_port: int

    def run(self, *commands: str) -> list[str]:
        """What each prints, in the folder that `up` was started in."""
        return answers(self.up, self.folder, [_by_this_python(each) for each in commands])


def _by_this_python(command: str) -> str:
    beside = Path(sys.executable).parent
    return re.sub(r"(?<![\w/])(?:\.venv/bin/)?(coatcheck|python) ", rf"{beside}/\1 ", command)


def allowed(command: str) -> str:
    """What ``COATCHECK_EGRESS_ALLOW=... make up`` allows."""
    assert made(command)[1:] == ["up"]
    return assigned(command)["COATCHECK_EGRESS_ALLOW"]


@pytest.fixture(scope="module")
def documented() -> Iterator[DocumentedUp]:
    folder = make_open_folder()
    (service,) = [each for each in TUTORIAL.blocks("python") if each.file_name == "my_module.py"]
    (folder / "my_module.py").write_text(service.text)
    analysis, remote, collector = free_port(), free_port(), free_port()
    collecting = steps(TRACE)[0].replace("collector.internal:4318", f"127.0.0.1:{collector}")
    variables = assigned(steps(JWTS)[0]) | assigned(collecting)
    variables["COATCHECK_EGRESS_ALLOW"] = ",".join(
        [
            allowed(steps(HTTP_SERVICE)[1]).replace("9000", str(analysis)),
            allowed(steps(ON_A_REMOTE)[1]).replace("8900", str(remote)),
        ]
    )
    others = {
        "PYTHONPATH": f"{SOURCE}:{REPOSITORY}",
        "COATCHECK_WEBHOOK_LOOPBACK": "on",  # as it is unless something else is allowed
        "COATCHECK_GRAPHS_CONCURRENCY": "0",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    options: dict[str, str] = {"data": ".coatcheck", **variables, **others}
    with running_up(folder, *SERVICES, **options) as up:
        yield DocumentedUp(up, folder, variables, analysis, remote, collector)
    shutil.rmtree(folder)


def test_the_commands_of_the_readme_work(documented: DocumentedUp) -> None:
    plain, test, with_service, curl = steps(README)
    assert made(plain)[1:] == ["up"]
    assert made(test)[0].endswith("pytest")
    assert made(with_service)[1:] == ["up", SERVICES[1]]
    (answer,) = documented.run(curl)
    assert json.loads(answer)["result_summary"] == {"greeting": "Hello, Ada!"}


def test_every_command_of_the_tutorial_works(documented: DocumentedUp) -> None:
    start, curl, submit, look, mistaken, connect, hand_in, cancel = steps(TUTORIAL)
    assert made(start)[1:] == ["up", SERVICES[0]]
    for program in TUTORIAL.blocks("python"):
        assert program.file_name is not None
        (documented.folder / program.file_name).write_text(program.text)
    database = re.search(r"^  database +(postgresql:\S+)$", documented.up.said(), re.MULTILINE)
    assert database is not None
    assert A_DATABASE in connect
    # Spelt so that the folder in it is not taken for the one that pages name.
    url = database[1].replace(".coatcheck", "%2Ecoatcheck")

    called, submitted = documented.run(curl, submit)
    assert json.loads(called)["result_summary"] == {"pages": 2, "words": 6}
    job = json.loads(submitted)
    assert (job["state"], job["result"]) == ("completed", {"pages": 2, "words": 6})
    looked, refused, _, watched, cancelled = documented.run(
        look.replace(A_TICKET, job["id"]),
        f"! {mistaken}",
        connect.replace(A_DATABASE, url),
        hand_in,
        cancel,
    )
    assert json.loads(looked)["id"] == job["id"]
    error = json.loads(refused)["error"]
    assert f"error      {error['message']} ({error['code']})\n" in TUTORIAL.text
    (sample,), (exactly,) = TUTORIAL.blocks("text sample"), TUTORIAL.blocks("text")
    assert_like(watched.splitlines(), sample.text.splitlines())
    # It makes a page each half second; how many until somebody looks is not said.
    assert re.sub(r"page \d+ of", "page 1 of", cancelled) == exactly.text


@pytest.mark.parametrize("guide", CLIENTS, ids=lambda page: page.path.stem)
def test_a_client_finds_the_server_by_what_its_guide_sets(
    documented: DocumentedUp, guide: Page
) -> None:
    start, export = steps(guide)[-2:]
    assert made(start)[1:] == ["up", *SERVICES[1:3]]
    greet = """curl -s "$COATCHECK_URL/api/v1/orgs/default/services/hello/greet" \\
      -H "Authorization: Bearer $COATCHECK_API_KEY" -d '{"name": "Ada"}'"""
    (answer,) = documented.run(f"{export}\n{greet} -H 'Content-Type: application/json'")
    assert json.loads(answer) == {"greeting": "Hello, Ada!"}


def test_a_token_signed_as_the_guide_says_calls_a_service(documented: DocumentedUp) -> None:
    _, curl = steps(JWTS)
    (program,) = JWTS.blocks("python")
    names: dict[str, Any] = {}
    exec(program.text.replace(A_SECRET, documented.variables["COATCHECK_JWT_SECRET"]), names)
    (answer,) = documented.run(f"TOKEN={names['token']}\n{curl}")
    assert json.loads(answer) == {"message": "hello"}


@contextmanager
def analysing(port: int) -> Iterator[list[tuple[str, str, Any]]]:
    Analysis.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", port), Analysis)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield Analysis.seen
    server.shutdown()
    serving.join()
    server.server_close()


def test_an_http_service_is_registered_and_called_as_its_guide_says(
    documented: DocumentedUp,
) -> None:
    register, _, _ = steps(HTTP_SERVICE)
    (document,) = HTTP_SERVICE.blocks("json")
    here = f"http://127.0.0.1:{documented.analysis_port}/api"
    (documented.folder / "analysis.json").write_text(
        document.text.replace("https://analysis.example.com/api", here)
    )
    call = """curl -s "$COATCHECK_URL/api/v1/orgs/$ORG/services/analysis/async/analyze?wait=30" \\
      -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"text": "a b"}'"""
    with analysing(documented.analysis_port) as seen:
        registered, called = documented.run(register, call)
    assert json.loads(registered)["service_id"] == "analysis"
    job = json.loads(called)
    assert (job["status"], job["result_summary"]) == ("completed", {"pages": 2})
    assert seen == [("/api/analyze", "Bearer the-upstreams-own-key", {"text": "a b"})]


def test_the_right_to_long_timeouts_is_given_as_its_guide_says(documented: DocumentedUp) -> None:
    (give,) = (step for step in steps(HTTP_SERVICE) if "--timeout-max" in step)
    given, listed = documented.run(
        give.replace("acme", "default"), ".venv/bin/coatcheck orgs list --json --data .coatcheck"
    )
    assert "default" in given
    limits = {row["id"]: row for row in map(json.loads, listed.splitlines())}
    assert "86400" in json.dumps(limits["default"])


@contextmanager
def speaking(command: str, port: int, folder: Path) -> Iterator[None]:
    words = [sys.executable, *made(command.replace("8900", str(port)))[1:]]
    log = folder / "remote.log"
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with log.open("wb") as output:
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        eventually(
            lambda: process.poll() is not None or "listening on" in log.read_text(),
            "the remote listens",
        )
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.terminate()
        process.wait(LIMIT_SECONDS)


def test_a_function_elsewhere_speaks_as_its_guide_says(documented: DocumentedUp) -> None:
    remote, _, register, _ = steps(ON_A_REMOTE)
    (document,) = ON_A_REMOTE.blocks("json")
    (documented.folder / "voice.json").write_text(
        document.text.replace("8900", str(documented.remote_port))
    )
    with speaking(remote, documented.remote_port, documented.folder):
        documented.run(register)
    assert (documented.folder / "hello.wav").read_bytes()[:4] == b"RIFF"


def test_a_trace_is_shown_as_its_guide_shows_one(documented: DocumentedUp) -> None:
    _, start, see = steps(TRACE)
    assert start.endswith(" coatcheck up\n")
    assert assigned(start).keys() <= documented.variables.keys()
    (shown,) = TRACE.blocks("text")
    named = f"export COATCHECK_URL=http://127.0.0.1:8080 PYTHONPATH={REPOSITORY}\n"
    (printed,) = documented.run(named + see.rstrip() + f" {documented.collector_port}\n")
    assert spans(printed) == spans(shown.text)


def spans(trace: str) -> set[tuple[int, str, str]]:
    """How deep each is, its name, and whose it is."""
    found = re.findall(r"^( *)(\S.*?) {2,}(coatcheck-\w+) ", trace, re.MULTILINE)
    return {(len(depth), name, process) for depth, name, process in found}
