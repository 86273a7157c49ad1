from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from coatcheck.domain.durations import BOUNDS_SECONDS, BUCKETS
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.telemetry import metrics
from coatcheck.telemetry.job_stats import Counted, JobCounts
from coatcheck.telemetry.metrics import BatchHistogram, Bounded
from coatcheck.telemetry.queue_metrics import QueueStatus, QueueWaiting, queue_snapshot
from coatcheck.telemetry.snapshots import render


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text: str, name: str, **labels: str) -> float:
    return samples(text)[name, frozenset(labels.items())]


def test_many_values_at_once_count_as_one_by_one() -> None:
    values = [0.0, 0.1, 0.1000001, 1.0, 5.0, 9.0, 1e9]
    buckets = (0.1, 1, 5)
    at_once, one_by_one = CollectorRegistry(), CollectorRegistry()
    BatchHistogram("seconds", "", buckets=buckets, registry=at_once).observe_many(values)
    plain = Histogram("seconds", "", buckets=buckets, registry=one_by_one)
    for single in values:
        plain.observe(single)
    counted = [
        {
            key: count
            for key, count in samples(generate_latest(registry).decode()).items()
            if not key[0].endswith("_created")
        }
        for registry in (at_once, one_by_one)
    ]
    assert counted[0] == counted[1]


def test_values_that_were_counted_in_finer_buckets_are_added_to_the_coarser_ones() -> None:
    registry = CollectorRegistry()
    coarse = BatchHistogram("seconds", "", buckets=(1.0, 4.0), registry=registry)
    coarse.add_counts((0.5, 1.0, 2.0, 4.0, 8.0), [1, 2, 4, 8, 16, 32])
    text = generate_latest(registry).decode()
    assert value(text, "seconds_bucket", le="1.0") == 3
    assert value(text, "seconds_bucket", le="4.0") == 15
    assert value(text, "seconds_bucket", le="+Inf") == value(text, "seconds_count") == 63
    assert value(text, "seconds_sum") == 0.25 + 2 * 0.75 + 4 * 1.5 + 8 * 3 + 16 * 6 + 32 * 8


def test_a_label_whose_values_people_make_up_has_so_many_and_no_more() -> None:
    bounded = Bounded(2)
    assert [bounded(word) for word in ("a", "b", "c", "a", "d")] == [
        "a",
        "b",
        "other",
        "a",
        "other",
    ]


def test_what_is_recorded_is_what_is_shown() -> None:
    metrics.record_submit_flush({Lane.BULK: 3})
    metrics.record_claim(0.002, 7)
    metrics.record_attempts("unit.post__metrics", [0.5, 2.0])
    metrics.record_finished("unit.post__metrics", State.COMPLETED, 2)
    metrics.record_request("GET", "/unit", 200, 0.02)
    text = metrics.exposition().decode()
    endpoint = "unit.post__metrics"
    assert value(text, "coatcheck_jobs_submitted_total", lane="bulk") >= 3
    assert value(text, "coatcheck_submit_flush_rows_count") >= 1
    assert value(text, "coatcheck_claimed_jobs_sum") >= 7
    assert value(text, "coatcheck_job_run_seconds_sum", endpoint=endpoint) == 2.5
    assert value(text, "coatcheck_job_run_seconds_count", endpoint=endpoint) == 2
    assert value(text, "coatcheck_jobs_finished_total", endpoint=endpoint, state="completed") == 2
    assert value(text, "coatcheck_http_requests_total", method="GET", route="/unit", status="200")
    assert value(text, "coatcheck_http_request_seconds_sum", method="GET", route="/unit") == 0.02
    assert value(text, "coatcheck_process_cpu_seconds_total", kind="serve") > 0


def test_what_became_of_jobs_is_added_up_over_organisations() -> None:
    def total(name: str, **labels: str) -> float:
        return samples(metrics.exposition().decode()).get((name, frozenset(labels.items())), 0.0)

    before = {
        "claimed": total("coatcheck_jobs_claimed_total", lane="urgent"),
        "retried": total("coatcheck_jobs_retried_total", lane="urgent"),
        "waits": total("coatcheck_job_start_seconds_count", lane="urgent"),
    }
    waits = [0] * BUCKETS
    waits[3] = 5
    metrics.record_job_stats(
        Counted(
            {
                ("a", "urgent"): JobCounts(started=5, retried=1, waits=waits),
                ("b", "urgent"): JobCounts(started=2, failed=3, rescued=1),
            },
            {("a", "unit_code"): 1, ("b", "unit_code"): 2},
        )
    )
    assert total("coatcheck_jobs_claimed_total", lane="urgent") == before["claimed"] + 7
    assert total("coatcheck_jobs_retried_total", lane="urgent") == before["retried"] + 1
    assert total("coatcheck_job_start_seconds_count", lane="urgent") == before["waits"] + 5
    assert total("coatcheck_jobs_failed_total", code="unit_code") == 3


def test_the_bounds_of_waits_are_among_those_that_they_are_counted_by() -> None:
    text = metrics.exposition().decode()
    bounds = [
        float(dict(labels)["le"])
        for name, labels in samples(text)
        if name == "coatcheck_job_start_seconds_bucket"
    ]
    assert set(bounds) - {float("inf")} <= set(BOUNDS_SECONDS)


def test_the_workers_of_a_process_are_summed() -> None:
    def shown() -> tuple[float, float]:
        text = metrics.exposition().decode()
        running = value(text, "coatcheck_worker_running", lane="standard")
        return running, value(text, "coatcheck_worker_poll_seconds")

    others, poll_seconds = shown()  # workers of other tests in this process live on beside these
    first, second = object(), object()
    metrics.set_running(Lane.STANDARD, 3, worker=first)
    metrics.set_poll_seconds(poll_seconds + 0.5, worker=first)
    metrics.set_running(Lane.STANDARD, 2, worker=second)
    metrics.set_poll_seconds(poll_seconds + 2.0, worker=second)
    assert shown() == (others + 5, poll_seconds + 2.0)
    metrics.set_running(Lane.STANDARD, 1, worker=first)
    assert shown() == (others + 3, poll_seconds + 2.0)
    metrics.forget_worker(second)
    assert shown() == (others + 1, poll_seconds + 0.5)
    metrics.forget_worker(first)
    assert shown() == (others, poll_seconds)


def test_the_queue_is_shown_with_how_long_its_oldest_job_has_been_due() -> None:
    queue = QueueStatus(
        [
            QueueWaiting(Lane.BULK, State.QUEUED, 11, 90.0),
            QueueWaiting(Lane.BULK, State.STAGED, 2, -3600.0),
            QueueWaiting(Lane.URGENT, State.PROCESSING, 1, 5.0),
        ],
        7.5,
        wal_bytes=1_376,
        commits=4,
    )
    text = render(queue_snapshot(queue)).decode()
    assert value(text, "coatcheck_queue_depth", lane="bulk", state="queued") == 11
    assert value(text, "coatcheck_queue_oldest_seconds", lane="bulk") == 90
    assert value(text, "coatcheck_queue_oldest_seconds", lane="urgent") == 0
    assert value(text, "coatcheck_webhooks_overdue_seconds") == 7.5
    assert value(text, "coatcheck_wal_bytes_total") == 1_376
    assert value(text, "coatcheck_commits_total") == 4
    assert value(text, "coatcheck_database_up") == 1


def test_of_a_queue_that_was_not_counted_no_zero_is_shown() -> None:
    assert list(
        samples(render(queue_snapshot(QueueStatus(is_counted=False))).decode()).items()
    ) == [(("coatcheck_database_up", frozenset()), 1.0)]


def test_without_a_database_nothing_is_shown_but_that() -> None:
    assert list(samples(render(queue_snapshot(None)).decode()).items()) == [
        (("coatcheck_database_up", frozenset()), 0.0)
    ]
