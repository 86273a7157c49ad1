"""A soak names what grows, judges nothing that has to grow, and lives with gaps."""

from __future__ import annotations

from chaos.soak.verdict import judged, markdown

HOUR = [10.0 * n for n in range(1, 361)]


def rows(**growth: float) -> list[dict[str, float]]:
    """Series that begin at 100 and grow by so much an hour."""
    named = {name.replace("_", " ").replace("1", "-1"): by for name, by in growth.items()}
    return [
        {"seconds": t, **{name: 100 + by * t / 3_600 for name, by in named.items()}} for t in HOUR
    ]


def growing(told: list[dict[str, float]]) -> list[str]:
    return [each.name for each in judged(told) if each.slope.grows]


def test_a_process_that_leaks_is_named() -> None:
    told = rows(server1_MB=0, worker1_MB=60, worker1_files=1, connections=0)
    assert growing(told) == ["worker-1 MB"]
    assert "**Grows: worker-1 MB.**" in markdown(told, "an hour")


def test_what_grows_with_the_work_is_not_judged() -> None:
    told = rows(records_MB=500, records=9_000, rows=500, ended_a_second=50)
    assert judged(told) == []


def test_steady_series_have_no_slope() -> None:
    told = rows(server1_MB=3, server1_files=0, connections=1, dead_rows=0)
    assert growing(told) == []
    assert "**No slope** in 4 series." in markdown(told, "an hour")


def test_a_process_that_was_away_has_gaps() -> None:
    told = rows(worker1_MB=60)
    for row in told[200:230]:
        del row["worker-1 MB"]
    assert growing(told) == ["worker-1 MB"]


def test_a_short_run_is_said_to_be_short() -> None:
    assert "Too short to judge" in markdown(rows(server1_MB=0)[:6], "a minute")
    assert "still warm up" in markdown(rows(server1_MB=0)[:60], "ten minutes")


def test_a_transaction_that_never_ends_and_files_that_stay_are_named() -> None:
    told = rows(oldest_transaction_s=3_600, blobs=500, temporary_files=200)
    assert growing(told) == ["oldest transaction s", "blobs", "temporary files"]


def test_what_the_load_saw_is_told_with_the_verdict() -> None:
    told = markdown(rows(server1_MB=0), "an hour", ["seen ends stay: a job came back"])
    assert "- seen ends stay: a job came back" in told
