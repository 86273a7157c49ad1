"""How the dashboard writes figures and times, and which addresses it leads to."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from coatcheck.dashboard import paths, rendering, responses
from coatcheck.dashboard.overview import chart, totals

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)


def thin(text: str) -> str:
    return text.replace("\u202f", " ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, rendering.NOTHING),
        (0, "0 ms"),
        (0.0042, "4.2 ms"),
        (0.25, "250 ms"),
        (1.26, "1.3 s"),
        (42, "42 s"),
        (75, "1 min 15 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_are_written_in_two_units_at_most(value: float | None, text: str) -> None:
    assert thin(rendering.seconds(value)) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (7, "7"), (2.5, "2.5"), (999, "999"), (12_345, "12.3k"), (1_000_000, "1.0M")],
)
def test_counts_in_tiles_are_short(number: float, text: str) -> None:
    assert rendering.compact(number) == text


def test_a_noun_agrees_with_its_count() -> None:
    assert rendering.counted(1, "task") == "1 task"
    assert rendering.counted(0, "task") == "0 tasks"
    assert rendering.counted(12_345, "retry", "retries") == "12,345 retries"


def test_times_are_relative_to_now() -> None:
    def ago(**passed: float) -> str:
        return thin(rendering.ago(NOW - timedelta(**passed), NOW))

    assert ago(seconds=0.4) == "now"
    assert ago(seconds=59) == "59 s ago"
    assert ago(minutes=61) == "1 h ago"
    assert ago(days=3) == "3 d ago"
    assert ago(minutes=-5) == "in 5 min"


def test_progress_is_never_whole_before_its_end() -> None:
    assert rendering.percent(0.999) == "99%"
    assert rendering.percent(1.0) == "100%"
    assert rendering.percent(0.29) == "29%"


def test_json_is_indented_unless_that_would_make_it_many_times_as_long() -> None:
    assert rendering.pretty({"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}'
    nested: list[object] = [1] * 1_000
    for _ in range(100):
        nested = [nested]
    assert len(rendering.pretty(nested)) < 2 * len(json.dumps(nested))


def test_names_are_one_segment_of_a_path_each() -> None:
    assert paths.to("/a/{name}/b", name="c/../d?e#f") == "/a/c%2F..%2Fd%3Fe%23f/b"
    assert paths.with_query("/ui/jobs", {"state": "", "q": "a&b", "n": None}) == "/ui/jobs?q=a%26b"


def test_an_event_of_many_lines_stays_one_event() -> None:
    assert responses.event("part", "a\n\nb\r\nevent: x") == (
        b"event: part\ndata: a\ndata: \ndata: b\ndata: event: x\n\n"
    )


def test_the_overview_adds_up_and_leaves_out_a_stretch_that_has_only_begun() -> None:
    def point(minute: int, jobs: int, start: float | None) -> dict[str, object]:
        counts = dict.fromkeys(("submitted", "completed", "cancelled", "retried", "rescued"), jobs)
        times = dict.fromkeys(("start_p50", "start_p99", "run_p50", "run_p99"), start)
        at = (NOW - timedelta(minutes=minute)).isoformat()
        return {"at": at, "failed": 1, **counts, **times}

    overview = {
        "generated_at": (NOW + timedelta(seconds=10)).isoformat(),
        "bucket_seconds": 60,
        "series": [point(2, 3, 0.1), point(1, 4, 0.2), point(0, 1, None)],
        "lanes": [
            {"queued": 2, "retrying": 1, "staged": 5, "held": 4, "exact": True},
            {"queued": 9, "retrying": 0, "staged": 0, "held": 0, "exact": False},
        ],
    }
    added = totals(overview)
    assert (added.completed, added.failed, added.waiting, added.scheduled) == (8, 3, 12, 5)
    assert (added.running, added.is_exact, added.start_p50) == (4, False, 0.2)
    assert added.failed_share == pytest.approx(3 / 11)
    lines = chart(overview)
    assert lines["completed"] == [3.0, 4.0, None]
    assert lines["start_p50"] == [0.1, 0.2, None]
