from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from coatcheck.telemetry import snapshots
from coatcheck.telemetry.snapshots import Snapshot


def process(
    jobs: float, running: float, poll: float, seconds: float, *, code: str = "a"
) -> Snapshot:
    registry = CollectorRegistry()
    Counter("jobs", "Jobs.", ["code"], registry=registry).labels(code).inc(jobs)
    Gauge("running", "Now.", registry=registry).set(running)
    Gauge("poll", "Pace.", registry=registry).set(poll)
    Histogram("seconds", "Times.", buckets=(1, 10), registry=registry).observe(seconds)
    return snapshots.take_snapshot(registry, {"poll": "max"})


def sample(snapshot: Snapshot, family: str, name: str, **labels: str) -> float:
    return snapshot[family].samples[name, tuple(sorted(labels.items()))]


def test_counts_are_added_and_gauges_as_they_were_declared() -> None:
    whole = snapshots.merged([process(3, 2, 1.0, 0.5), process(4, 5, 8.0, 5)])
    assert sample(whole, "jobs", "jobs_total", code="a") == 7
    assert sample(whole, "running", "running") == 7
    assert sample(whole, "poll", "poll") == 8
    assert sample(whole, "seconds", "seconds_bucket", le="1.0") == 1
    assert sample(whole, "seconds", "seconds_bucket", le="10.0") == 2
    assert sample(whole, "seconds", "seconds_sum") == 5.5


def test_merging_leaves_what_was_merged_as_it_was() -> None:
    first = process(3, 2, 1.0, 0.5)
    snapshots.merged([first, process(4, 5, 8.0, 5)])
    assert sample(first, "jobs", "jobs_total", code="a") == 3


def test_what_is_stored_comes_back_as_it_was_and_names_no_time_of_creation() -> None:
    snapshot = process(3, 2, 1.0, 0.5)
    assert snapshots.decoded(snapshots.encoded(snapshot)) == snapshot
    assert b"_created" not in snapshots.render(snapshot)
    assert b'jobs_total{code="a"} 3.0' in snapshots.render(snapshot)


def test_of_what_has_ended_the_counts_remain() -> None:
    assert set(snapshots.counts(process(3, 2, 1.0, 0.5))) == {"jobs", "seconds"}


def test_what_was_counted_elsewhere_is_taken_off_and_the_present_is_left() -> None:
    rest = snapshots.less(process(10, 2, 1.0, 0.5), process(4, 9, 9.0, 0.5))
    assert sample(rest, "jobs", "jobs_total", code="a") == 6
    assert sample(rest, "running", "running") == 2
    assert sample(rest, "seconds", "seconds_count") == 0


def test_beyond_a_bound_the_smallest_rows_become_one_and_the_sum_stays() -> None:
    many = snapshots.merged([process(count, 0, 0, 1, code=f"c{count}") for count in range(1, 6)])
    few = snapshots.bounded(many, 3)
    assert few["jobs"].samples == {
        ("jobs_total", (("code", "c5"),)): 5,
        ("jobs_total", (("code", "c4"),)): 4,
        ("jobs_total", (("code", "other"),)): 6,
    }
    assert few["seconds"] == many["seconds"]
