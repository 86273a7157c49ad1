"""A job's handler in this process: what it reports, what it keeps, and where it stops."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from coatcheck import FailJob, Job, Service
from coatcheck.cli.replay import LocalRun
from coatcheck.client import JobDetails

desk = Service("desk")


@desk.post("/double")
async def double(job: Job, number: int) -> int:
    await job.progress(0.5, "halfway")
    await job.log("doubling", level="warning", number=number)
    await job.attach("notes.txt", b"twice")
    if number < 0:
        raise ValueError("too little")
    return number * 2


@desk.post("/count")
def count(job: Job, words: list[str]) -> dict[str, int]:
    job.emit("counting")
    if not words:
        raise FailJob("nothing to count", code="empty")
    return {"words": len(words), "attempt": job.attempt}


@desk.post("/repeat")
async def repeat(job: Job, text: str) -> None:
    await job.progress(0.1, text)
    await job.log(text, said=text)
    raise ValueError(text)


def run(
    function: str,
    payload: bytes,
    *,
    breaks: bool = False,
    post_mortem: bool = False,
    job_id: str = "01ARZ3NDEKTSV4RRFFQ69G5FAV",
) -> bool:
    endpoint = desk.endpoints[f"post__{function}"]
    details = JobDetails(
        id=job_id,
        state="failed",
        terminal=True,
        org_id="default",
        lane="standard",
        engine_endpoint=endpoint.name,
        attempts=3,
    )
    return LocalRun(endpoint, details, payload, as_json=True).to_its_end(
        breaks=breaks, post_mortem=post_mortem
    )


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_result_goes_to_stdout_reports_to_stderr_and_files_to_a_folder(
    folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("double", b'{"number": 21}')
    said = capsys.readouterr()
    (file,) = folders.glob("*/notes.txt")
    assert file.read_bytes() == b"twice"
    assert said.out == "42\n"
    assert f"file: {file}" in said.err
    assert "50%  halfway" in said.err
    assert "warning doubling  number=21" in said.err


@pytest.mark.parametrize("job_id", ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "0f" * 16])
def test_a_plain_function_is_given_a_whole_job(
    job_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("count", b'{"words": ["a", "b"]}', job_id=job_id)
    said = capsys.readouterr()
    assert json.loads(said.out) == {"words": 2, "attempt": 3}
    assert "counting" in said.err


def test_what_breaks_is_shown_with_its_lines_and_what_is_meant_without(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not run("double", b'{"number": -1}')
    said = capsys.readouterr()
    assert 'raise ValueError("too little")' in said.err
    assert "/local_run.py" not in said.err  # the handler's own lines only
    assert not run("count", b'{"words": []}')
    said = capsys.readouterr()
    assert "FailJob: nothing to count (empty)" in said.err
    assert "Traceback" not in said.err
    assert not run("count", b'{"word": []}')
    assert "words: missing" in capsys.readouterr().err


def test_what_was_handed_in_tells_the_terminal_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "[/bold]\x1b]0;owned\x07\x1b[31m\x9b2J"
    assert not run("repeat", json.dumps({"text": hostile}).encode())
    said = capsys.readouterr().err
    assert said.count("[/bold]") == 4
    assert [c for c in said if not c.isprintable() and c != "\n"] == []


def test_the_debugger_opens_where_it_broke(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("print('it was', number)\nq\n"))
    assert not run("double", b'{"number": -7}', post_mortem=True)
    said = capsys.readouterr()
    assert "it was -7" in said.out


@pytest.mark.parametrize(
    ("function", "payload", "shown"),
    [("double", b'{"number": 4}', "number"), ("count", b'{"words": ["a"]}', "words")],
)
def test_it_stops_at_the_first_line_of_the_handler(
    function: str,
    payload: bytes,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"print('given', {shown})\nc\n"))
    assert run(function, payload, breaks=True)
    given = json.loads(payload)[shown]
    shown_first, _, rest = capsys.readouterr().out.partition(f"given {given}")
    assert "-> " in shown_first  # the line it stopped at, and nothing the handler has returned
    assert rest.splitlines()[-1]


def test_leaving_the_debugger_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert not run("count", b'{"words": ["a"]}', breaks=True)
    assert "Traceback" not in capsys.readouterr().err
