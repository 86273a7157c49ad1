"""Commands about jobs, against a live server."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coatcheck.cli.app import app
from coatcheck.domain.tenants import Scope
from tests.cli.conftest import Live
from tests.waiting import eventually


def test_a_job_is_handed_in_by_path_and_by_name(live: Live, tmp_path: Path) -> None:
    by_path = live.shown("submit", "desk/echo/ada", '{"message": "hi"}', "--wait")
    assert by_path["state"] == "completed"
    assert by_path["result"] == {"name": "ada", "message": "hi"}
    arguments = tmp_path / "arguments.json"
    arguments.write_text('{"name": "a b", "message": "hi"}')
    by_key = live.shown("submit", "desk.post__echo_name", f"@{arguments}", "--wait")
    assert by_key["result"] == {"name": "a b", "message": "hi"}
    assert live.shown("job", by_key["id"]) == by_key
    once = live.shown("submit", "desk/echo/bob", "--key", "once", "--lane", "urgent")
    assert once["lane"] == "urgent"
    again = live.run("submit", "desk/echo/eve", '{"message": "x"}', "--key", "once")
    assert json.loads(again.stdout)["id"] == once["id"]
    assert "warning" in again.stderr


def test_who_may_only_hand_in_is_told_the_jobs_id(live: Live) -> None:
    assert live.deployment is not None
    key = live.do(live.deployment.create_key("default", "deliverer", {Scope.SUBMIT}))
    ran = live.run("submit", "desk/echo/ada", COATCHECK_API_KEY=key)
    assert "scope read" in ran.stderr
    assert live.shown("job", json.loads(ran.stdout)["id"])["owner"] == "user:deliverer"


def test_what_cannot_be_handed_in_is_said_with_what_to_do(live: Live) -> None:
    for arguments, said in (
        (("desk/echo/x", "{oops"), "the payload is not JSON"),
        (("desk",), "is not an endpoint"),
        (("/echo",), "has no service"),
        (("desk.post__ecko_name",), "Did you mean desk.post__echo_name?"),
        (("desk.break",), "Did you mean desk.post__break?"),
        (("desk.nothing",), "desk.post__break"),
        (("nobody/x",), "/ui/services"),
        (("desk.v7.post__echo_name",), "has no version 7"),
        (("desk.post__echo_name",), "needs these arguments: name"),
        (("nobody.post__x",), "service 'nobody' not found"),
        (("desk/echo/x", "{}", "--lane", "express"), "lane"),
        (("desk/echo/x", "@absent.json"), "absent.json: No such file"),
    ):
        ran = CliRunner().invoke(app, ["submit", *arguments], env=live.variables)
        assert ran.exit_code in (1, 2), (arguments, ran.output)
        assert (ran.stdout, said in ran.stderr) == ("", True), (arguments, ran.stderr)


def test_jobs_are_listed_filtered_and_found(live: Live) -> None:
    failed = live.failed()
    done = live.shown("submit", "desk/echo/ada", "--key", "to be found", "--wait")
    newest = live.run("jobs", "--json", "--limit", "1")
    assert json.loads(newest.stdout)["id"] == done["id"]
    cursor = newest.stderr.split("--cursor ")[1].strip()
    after = live.run("jobs", "--json", "--limit", "1", "--cursor", cursor).stdout
    assert json.loads(after)["id"] == failed["id"]
    only = live.run("jobs", "--state", "failed", "--error-code", "max_retries_exhausted").stdout
    assert failed["id"] in only
    assert done["id"] not in only
    for line in only.splitlines():
        assert line.split()[1] == "failed"
    assert "\x1b" not in only
    (found,) = live.run("jobs", "-q", "to be found").stdout.splitlines()
    assert done["id"] in found
    assert live.run("jobs", "--state", "live", "--service", "desk", "--until", "1d").stdout == ""
    refused = live.run("jobs", "--watch", "--json", exit_code=2)
    assert "cannot be combined" in refused.stderr
    live.run("jobs", "--state", "sleeping", exit_code=2)


def test_a_failed_job_is_shown_with_its_log_and_what_happened_to_it(live: Live) -> None:
    failed = live.failed()
    said = live.run("logs", failed["id"]).stdout.splitlines()
    assert "warning about to break  tool=hammer" in said[0]
    assert any("broken" in line for line in said[1:])
    assert "\x1b" not in "".join(said)
    kinds = [
        json.loads(line)["kind"]
        for line in live.run("logs", failed["id"], "--json").stdout.splitlines()
    ]
    assert kinds[:2] == ["log", "attempt"]
    followed = live.run("logs", failed["id"], "-f").stdout.splitlines()
    assert followed == said
    told = live.run("explain", failed["id"], "--timeline").stdout
    assert "attempt_failed" in told
    assert "finished" in told
    both = live.shown("explain", failed["id"], "--timeline", "--json")
    assert both["explanation"]["terminal"] is True
    assert both["timeline"][0]["kind"] == "created"


def test_a_job_is_watched_in_lines_and_its_end_is_the_exit_code(live: Live) -> None:
    watched = live.run("submit", "desk/break", "--watch", exit_code=1)
    job = json.loads(watched.stdout)
    assert job["state"] == "failed"
    assert "about to break" in watched.stderr
    *_, state, logs, retry = watched.stderr.splitlines()
    assert state == "failed"
    assert logs.endswith(f" logs {job['id']}")
    assert retry.endswith(f" retry {job['id']} --watch")
    assert "\x1b" not in watched.stderr
    again = live.run("watch", job["id"], exit_code=1)
    assert again.stdout == watched.stdout
    assert "about to break" in again.stderr, "what one said that ended before anybody looked"
    gate = {"gate": "watched"}
    held = live.shown("submit", "desk/hold", json.dumps(gate), "--method", "put")
    live.open_gate("watched")
    ended = live.run("watch", held["id"])
    assert json.loads(ended.stdout)["result"] == "let go"
    assert live.shown("job", held["id"], "--wait")["state"] == "completed"


def test_what_is_watched_is_told_in_lines_of_json(live: Live) -> None:
    held = live.shown("submit", "desk/hold", '{"gate": "lines"}', "--method", "PUT")
    live.open_gate("lines")
    lines = live.run("watch", held["id"], "--json").stdout.splitlines()
    *before, end = (json.loads(line) for line in lines)
    assert (end["kind"], end["job"]["result"]) == ("end", "let go")
    assert {line["kind"] for line in before} <= {"state", "progress", "log", "why"}
    *_, ended = live.run("watch", held["id"], "--json").stdout.splitlines()
    assert json.loads(ended) == end


def test_a_batch_is_watched_by_its_id_as_well(live: Live, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.ndjson"
    tasks.write_text('{"name": "ada"}\n{"name": "bob"}\n')
    target = ("--service", "desk", "--endpoint", "/echo/{name}")
    batch_id = live.run("batch", "submit", str(tasks), *target).stdout.strip()
    assert "2 succeeded" in live.run("watch", batch_id).stdout
    *_, end = live.run("watch", batch_id, "--json").stdout.splitlines()
    assert json.loads(end)["batch"]["status"] == "completed"
    failing = ("--service", "desk", "--endpoint", "/break")
    tasks.write_text("{}\n")
    batch_id = live.run("batch", "submit", str(tasks), *failing).stdout.strip()
    watched = live.run("watch", batch_id, "--json", exit_code=1)
    assert "rerun" in watched.stderr
    assert json.loads(watched.stdout.splitlines()[-1])["batch"]["counts"]["failed"] == 1
    assert "task 0 failed: " in watched.stderr, "the user is told why at once"
    unknown = live.run("watch", "01ARZ3NDEKTSV4RRFFQ69G5FAV", exit_code=2)
    assert unknown.stderr.startswith("error: ")


def test_a_waiting_job_is_explained(live: Live) -> None:
    nobody = live.shown("submit", "desk/echo/x", "--lane", "bulk")
    explained = live.shown("explain", nobody["id"], "--json")
    assert explained["job_id"] == nobody["id"]
    assert explained["summary"]
    assert explained["summary"] in live.run("explain", nobody["id"]).stdout or explained["terminal"]


def test_jobs_are_cancelled_one_by_one_and_by_a_filter(live: Live) -> None:
    def held() -> str:
        arguments = ("desk/hold", '{"gate": "never"}', "--method", "PUT")
        job_id: str = live.shown("submit", *arguments)["id"]
        return job_id

    first, second, third = held(), held(), held()
    assert first in live.run("cancel", first).stdout
    assert live.shown("job", first, "--wait")["state"] == "cancelled"
    live.run("cancel", first)
    refused = live.run("cancel", live.failed()["id"], exit_code=2)
    assert refused.stderr.startswith("error: ")
    unsure = live.run("cancel", "--service", "desk", exit_code=2)
    assert "this would cancel 2 jobs" in unsure.stderr
    assert "--yes" in unsure.stderr
    done = live.run("cancel", "--service", "desk", "--state", "live", "--yes")
    assert sorted(done.stdout.split()) == sorted([second, third])
    for job_id in (second, third):
        assert live.shown("job", job_id, "--wait")["state"] == "cancelled"
    assert "No jobs match." in live.run("cancel", "--service", "desk", "--yes").stderr
    live.run("cancel", exit_code=2)
    live.run("cancel", first, "--state", "live", exit_code=2)


def test_what_failed_is_handed_in_again(live: Live) -> None:
    failed = [live.failed()["id"] for _ in range(3)]
    done = live.shown("submit", "desk/echo/ada", "--wait")["id"]
    refused = live.run("retry", done, exit_code=2)
    assert "not_retryable" in refused.stderr or "input_not_kept" in refused.stderr
    (live.folder / "mended").touch()
    try:
        again = json.loads(live.run("retry", failed[0], "--watch").stdout)
        assert (again["state"], again["retry_of"]) == ("completed", failed[0])
        assert live.shown("job", failed[0])["retried_as"] == again["id"]
        listed = live.run("retry", failed[1], failed[0], "--json").stdout.splitlines()
        assert [json.loads(line)["id"] for line in listed] == [failed[1], failed[0]]
        moments = ("--since", "1h", "--error-code", "max_retries_exhausted")
        pairs = live.run("retry", *moments, "--yes").stdout.splitlines()
        retried = {pair.split()[0] for pair in pairs}
        assert failed[2] in retried
        assert not retried & {failed[0], failed[1]}
        # What was retried is not found again.
        assert "No jobs match." in live.run("retry", *moments, "--yes").stderr
        new_ids = [pair.split()[1] for pair in pairs]
        assert live.shown("job", new_ids[0], "--wait")["state"] == "completed"
    finally:
        (live.folder / "mended").unlink()
    live.run("retry", *failed, "--watch", exit_code=2)


def test_a_failed_job_is_replayed_here_and_the_server_is_told_nothing(
    live: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    failed = live.failed()
    before = live.run("jobs", "--json", "--limit", "1").stdout
    target = "tests.cli.desk_service:desk"
    ran = CliRunner().invoke(app, ["replay", "--local", failed["id"], target], env=live.variables)
    assert ran.exit_code == 1
    assert "about to break  tool=hammer" in ran.stderr
    assert "raise ValueError" in ran.stderr
    (live.folder / "mended").touch()
    try:
        assert live.run("replay", "--local", failed["id"], target).stdout == "null\n"
    finally:
        (live.folder / "mended").unlink()
    assert live.run("jobs", "--json", "--limit", "1").stdout == before
    assert live.shown("job", failed["id"]) == failed

    assert "--local is required" in live.run("replay", failed["id"], target, exit_code=2).stderr
    done = live.shown("submit", "desk/echo/ada", "--wait")["id"]
    assert live.run("replay", "--local", done, target, exit_code=2).stderr.startswith("error: ")
    other = "coatcheck.cli.demo:demo"
    wrong = live.run("replay", "--local", failed["id"], other, exit_code=2)
    assert "does not have the job's endpoint desk.post__break" in wrong.stderr


def test_the_overview_and_the_usage_are_shown_once_in_a_pipe(live: Live) -> None:
    screen = live.run("top").stdout
    assert "completed" in screen
    assert "standard" in screen
    assert "\x1b" not in screen
    assert live.shown("top", "--json")["org_id"] == "default"
    assert live.shown("top", "--all", "--json")["org_id"] == "*"
    live.failed()

    def metered() -> list[str]:
        rows: list[str] = live.run("usage", "--csv").stdout.splitlines()
        return rows if len(rows) > 1 else []

    heading, *rows = eventually(metered, "the usage is counted")
    assert heading.startswith("day,endpoint,flow,jobs")
    assert any("desk.post__break" in row for row in rows)
    days = live.run("usage", "--json", "--from", "2026-01-01").stdout.splitlines()
    assert json.loads(days[0])["jobs"] >= 1
    heading, *rows = live.run("usage", "--by-hour").stdout.splitlines()
    assert heading.startswith("day,hour,endpoint,flow,jobs")
    assert any("desk.post__break" in row for row in rows)
    hour = json.loads(live.run("usage", "--json", "--by-hour").stdout.splitlines()[0])
    assert hour["hour"].startswith(hour["day"])
    live.run("usage", "--json", "--csv", exit_code=2)
    live.run("usage", "--from", "yesterday", exit_code=2)


def test_a_folder_of_code_becomes_a_graph(live: Live, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "a.py").write_text("def f():\n    return g()\n\n\ndef g():\n    return 1\n")
    graph = live.shown("graphs", "call", str(code), "--key", "a folder")
    assert graph["stats"]["functions"] == 2
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.write(code / "a.py", "a.py")
    file = tmp_path / "graph.json"
    ran = live.run("graphs", "parse", str(archive), "-o", str(file), "--json")
    told = json.loads(ran.stdout)
    assert told["file"] == str(file)
    assert json.loads(file.read_text())["stats"] == told["stats"]
    bad = tmp_path / "bad.zip"
    bad.write_bytes(b"no zip")
    refused = live.run("graphs", "call", str(bad), exit_code=2)
    assert "archive_rejected" in refused.stderr
    live.run("graphs", "call", str(tmp_path / "absent"), exit_code=2)
    live.run("graphs", "call", str(code), "-o", str(tmp_path), exit_code=2)


def test_what_a_server_refuses_is_said_in_a_line(live: Live) -> None:
    unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    for arguments in (
        ("job", unknown),
        ("logs", unknown),
        ("retry", unknown),
        ("job", "xyz"),
    ):
        ran = live.run(*arguments, exit_code=2)
        assert ran.stderr.startswith("error: "), arguments
        assert ran.stdout == ""
    assert "COATCHECK_API_KEY" in live.run("jobs", "--api-key", "cck_x_y", exit_code=2).stderr
