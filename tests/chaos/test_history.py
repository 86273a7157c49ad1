"""The history of a chaos run: what its verdict rests on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from chaos.history import History, note_execution, read, read_executions

ROOT = Path(__file__).resolve().parents[2]
_WRITER = """
import sys
from chaos.history import note_execution
for number in range(200):
    note_execution(sys.argv[1], job=sys.argv[2], number=number, word="ü" * 300)
"""


def test_a_note_is_a_line_with_its_time_and_its_kind(tmp_path: Path) -> None:
    history = History(tmp_path / "run" / "history.ndjson")
    history.note("invoked", call=1, key=None)
    history.note("ok", call=1, job="01M7")
    history.close()

    began, invoked, ok = read(history.path)

    assert began["kind"] == "began"
    assert invoked | {"t": 0} == {"t": 0, "kind": "invoked", "call": 1, "key": None}
    assert ok | {"t": 0} == {"t": 0, "kind": "ok", "call": 1, "job": "01M7"}
    assert 0 <= began["t"] <= invoked["t"] <= ok["t"]


def test_what_was_noted_is_on_disk_before_the_history_is_closed(tmp_path: Path) -> None:
    history = History(tmp_path / "history.ndjson")
    history.note("fault", name="cut")

    assert [row["kind"] for row in read(history.path)] == ["began", "fault"]
    assert history.counts == {"began": 1, "fault": 1}
    history.close()


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    history = History(tmp_path / "history.ndjson")
    history.note("ok", call=1)
    history.close()
    with history.path.open("ab") as file:
        file.write(b'{"t": 1.0, "kind": "ok", "ca')

    assert [row["kind"] for row in read(history.path)] == ["began", "ok"]


def test_a_history_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    for call in (1, 2):
        history = History(tmp_path / "history.ndjson")
        history.note("ok", call=call)
        history.close()

    assert [row.get("call") for row in read(history.path)] == [None, 1, None, 2]


def test_executions_of_other_processes_have_their_place_in_time(tmp_path: Path) -> None:
    history = History(tmp_path / "history.ndjson")
    note_execution(str(history.executions), job="a")
    history.note("seen", job="a")
    note_execution(str(history.executions), job="b")
    history.note("seen", job="b")
    history.close()

    rows = [*read(history.path), *read_executions(history.path)]

    in_order = [(row["kind"], row["job"]) for row in sorted(rows, key=lambda row: row["t"])[1:]]
    assert in_order == [("executed", "a"), ("seen", "a"), ("executed", "b"), ("seen", "b")]


def test_a_run_without_executions_has_none(tmp_path: Path) -> None:
    history = History(tmp_path / "history.ndjson")
    history.close()

    assert read_executions(history.path) == []


def test_lines_of_several_processes_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "executions.ndjson"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(path), job], env=environment)
        for job in "ab"
    ]
    assert [writer.wait() for writer in writers] == [0, 0]

    rows = read(path)

    for job in "ab":
        assert [row["number"] for row in rows if row["job"] == job] == list(range(200))
