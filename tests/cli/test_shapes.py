"""What commands make of what they are given, without any server."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from coatcheck.cli.app import app
from coatcheck.cli.command_errors import Misconfigured
from coatcheck.cli.graphs import archive_of
from coatcheck.cli.job_display import line, rows, span
from coatcheck.cli.jobs import lines
from coatcheck.cli.keys import table as key_table
from coatcheck.cli.top import latest_points, screen, sparkline
from coatcheck.client import (
    ApiKey,
    FailureCount,
    JobBlocker,
    JobDetails,
    JobError,
    JobEta,
    JobExplanation,
    KeyRate,
    LaneBacklog,
    Overview,
    OverviewPoint,
    QueueBacklog,
    WorkerStatus,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_the_list_of_keys_is_whole_on_a_terminal_of_80_columns() -> None:
    rate = KeyRate(1000, 60)
    names = ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "acme", "dev", "a name of quite some length")
    key = ApiKey(*names, ("submit",), rate, NOW, NOW + timedelta(days=30), None)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(key_table([key]))
    text = console.export_text()
    assert "…" not in text
    for shown in (key.id, "1000/60", "2026-01-31", "2026-03-02"):
        assert shown in text


def test_a_folder_is_sent_as_its_own_files_and_the_same_each_time(tmp_path: Path) -> None:
    code = tmp_path / "code"
    for name in ("a.py", "deep/b.py", ".git/config", "node_modules/x/index.js"):
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(name)
    (code / "link.py").symlink_to("/etc/hostname")
    with archive_of(code) as first:
        assert zipfile.ZipFile(first).namelist() == ["a.py", "deep/b.py"]
        once = first.read_bytes()
    assert not first.exists()
    os.utime(code / "a.py", (0, 0))
    with archive_of(code) as again:
        assert again.read_bytes() == once
    given = tmp_path / "given.zip"
    given.write_bytes(once)
    with archive_of(given) as same:
        assert same == given
    assert given.exists()


def test_a_folder_without_files_and_a_path_to_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no files to send"), archive_of(tmp_path):
        pass
    with pytest.raises(Misconfigured, match="does not exist"), archive_of(tmp_path / "absent"):
        pass


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (0.004, "4ms"), (59, "59s"), (200, "3m20s"), (7500, "2h05m"), (400_000, "4d")],
)
def test_spans_are_shown_in_their_largest_units(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


def test_what_others_have_written_stays_on_its_line() -> None:
    job = JobDetails(
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "failed",
        True,
        service="demo",
        endpoint="POST /echo",
        error=JobError("x", "one\ntwo\x1b[31m"),
    )
    assert "\n" not in line(job)
    assert "\x1b" not in line(job) + "".join(text for _, text, _ in rows(job))
    assert "demo POST /echo" in line(job)


def test_an_explanation_says_nothing_twice() -> None:
    full = JobBlocker("concurrency", "1 may run, and 1 does.", holders=("01H",))
    later = JobBlocker("backoff", "It is tried again.", until=NOW)
    waits = JobExplanation(
        "01J",
        "queued",
        False,
        "1 may run, and 1 does. Its end is expected soon.",
        (full, later),
        position=1200,
        eta=JobEta(start_p50=60, start_p90=60, end_p50=90, end_p90=200),
    )
    summary, held, tried, place, starts, ends = lines(waits)
    assert summary == waits.summary
    assert held == "  held by 01H"
    assert tried.startswith("  It is tried again.  until ")
    assert place == "  queue position: 1,200"
    assert (starts, ends) == (
        "  starts in about 1m00s",
        "  ends in about 1m30s (90 % within 3m20s)",
    )
    runs = JobExplanation("01J", "processing", False, "It runs.", eta=waits.eta)
    assert lines(runs) == ["It runs.", ends]


def overview(org: str = "default") -> Overview:
    points = [OverviewPoint(NOW - timedelta(minutes=n), completed=100 * n) for n in (3, 2, 1)]
    points.append(
        OverviewPoint(NOW - timedelta(seconds=30), completed=35, start_p50=0.002, start_p99=3.0)
    )
    return Overview(
        org,
        NOW,
        60.0,
        tuple(points),
        lanes=(LaneBacklog("urgent", queued=1234, oldest_queued_seconds=200),),
        queues=(QueueBacklog("acme", "f", "chat\x1b[2Jllama3", "bulk", 10, 2),),
        failures=(FailureCount("handler_error", 3),),
        workers_alive=2,
        workers=(WorkerStatus(7, "host:1", "0.1.0", held=5),),
    )


def drawn(what: Overview) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(screen(what))
    return console.export_text()


def test_the_screen_has_rates_lanes_queues_failures_and_workers() -> None:
    text = drawn(overview())
    assert "2 workers online" in text
    (rate,) = [row for row in text.splitlines() if row.startswith("completed")]
    assert "1.50" in rate  # 100 in a minute, and 35 in the half that has begun
    (lane,) = [row for row in text.splitlines() if row.startswith("urgent")]
    assert lane.split() == ["urgent", "1,234", "3m20s", "0", "0", "0"]
    assert "handler_error" in text
    assert "host:1" in text
    assert "\x1b" not in text
    assert "acme" in drawn(overview("*"))


def test_rates_are_of_a_minute_and_what_has_begun_after_it() -> None:
    points, seconds = latest_points(overview())
    assert ([point.completed for point in points], seconds) == ([100, 35], 90.0)
    alone = Overview("default", NOW, 60.0, (OverviewPoint(NOW, completed=5),))
    assert latest_points(alone) == (alone.series, 1.0)
    assert "last minute" in drawn(Overview("default", NOW, 60.0))
    wide = drawn(Overview("default", NOW, 900.0))
    assert "last 15 minutes" in wide
    assert "one bar per 15 minutes" in wide


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_the_screen_fits_its_terminal_and_shows_the_latest(width: int, height: int) -> None:
    points = [OverviewPoint(NOW - timedelta(minutes=59 - n), completed=n == 59) for n in range(60)]
    crowded = Overview(
        "default",
        NOW,
        60.0,
        tuple(points),
        lanes=tuple(LaneBacklog(lane) for lane in ("urgent", "standard", "bulk")),
        queues=tuple(QueueBacklog("acme", f"flow {n}", "", "bulk", 10) for n in range(20)),
        failures=tuple(FailureCount(f"code_{n}", 3) for n in range(20)),
        workers_alive=1,
        workers=tuple(WorkerStatus(n, f"host:{n}") for n in range(20)),
    )
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(screen(crowded, rows=height))
    text = console.export_text()
    assert len(text.splitlines()) == height
    assert "1 worker online" in text
    (completed,) = [row for row in text.splitlines() if row.startswith("completed")]
    assert completed.rstrip().endswith("█")
    for shown in ("bulk", "flow 0", "code_0", "host:0"):
        assert shown in text
    assert "…" not in text


def test_that_nothing_waits_is_said_and_what_only_admins_see_is_not_called_nothing() -> None:
    lanes = (LaneBacklog("urgent", queued=0),)
    assert "no jobs are queued" in drawn(Overview("default", NOW, 60.0, lanes=lanes))
    lanes = (LaneBacklog("urgent", queued=3),)
    text = drawn(Overview("default", NOW, 60.0, lanes=lanes))
    assert "no jobs are queued" not in text
    assert "scope admin" in text


def test_a_curve_reaches_from_nothing_to_the_most() -> None:
    assert sparkline([0, 1, 2]) == "▁▅█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(shell: str) -> None:
    ran = CliRunner().invoke(app, ["completion", shell])
    assert ran.exit_code == 0
    assert f"complete_{shell}" in ran.stdout
    assert "coatcheck" in ran.stdout


def test_a_shell_that_asks_is_answered_with_commands_and_options() -> None:
    def complete(words: str, at: int) -> set[str]:
        told = {"_COATCHECK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        program = (
            "import sys; sys.argv[0] = 'coatcheck'; from coatcheck.cli.entry import main; main()"
        )
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | told,
            capture_output=True,
            text=True,
        )
        return set(ran.stdout.split())

    assert complete("coatcheck jo", 1) == {"job", "jobs"}
    assert complete("coatcheck batch submit --we", 3) == {"--webhook-url"}
