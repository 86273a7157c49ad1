from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.telemetry import metrics

SOURCE = Path(__file__).resolve().parents[2] / "src"


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
    metrics.BatchHistogram("seconds", "", buckets=buckets, registry=at_once).observe_many(values)
    plain = Histogram("seconds", "", buckets=buckets, registry=one_by_one)
    for single in values:
        plain.observe(single)
    shown = [
        {
            key: count
            for key, count in samples(generate_latest(registry).decode()).items()
            if not key[0].endswith("_created")
        }
        for registry in (at_once, one_by_one)
    ]
    assert shown[0] == shown[1]


def test_what_is_recorded_is_what_is_shown() -> None:
    metrics.record_submit_flush({Lane.BULK: 3})
    metrics.record_claim(0.002, 7)
    metrics.record_attempts("unit.post__metrics", [0.5, 2.0])
    metrics.record_finished("unit.post__metrics", State.COMPLETED, 2)
    metrics.set_running(Lane.URGENT, 4)
    text = metrics.exposition({(Lane.BULK, State.QUEUED): 11}).decode()
    endpoint = "unit.post__metrics"
    assert value(text, "coatcheck_jobs_submitted_total", lane="bulk") >= 3
    assert value(text, "coatcheck_submit_flush_rows_count") >= 1
    assert value(text, "coatcheck_claimed_jobs_sum") >= 7
    assert value(text, "coatcheck_job_run_seconds_sum", endpoint=endpoint) == 2.5
    assert value(text, "coatcheck_job_run_seconds_count", endpoint=endpoint) == 2
    assert value(text, "coatcheck_jobs_finished_total", endpoint=endpoint, state="completed") == 2
    assert value(text, "coatcheck_worker_running", lane="urgent") == 4
    assert value(text, "coatcheck_queue_depth", lane="bulk", state="queued") == 11
    assert value(text, "coatcheck_database_up") == 1


def test_the_workers_of_a_process_are_summed() -> None:
    def running() -> float:
        return value(metrics.exposition({}).decode(), "coatcheck_worker_running", lane="standard")

    metrics.set_running(Lane.STANDARD, 3, worker=11)
    metrics.set_running(Lane.STANDARD, 2, worker=12)
    assert running() == 5
    metrics.set_running(Lane.STANDARD, 0, worker=11)
    assert running() == 2
    metrics.set_running(Lane.STANDARD, 0, worker=12)


def test_processes_that_share_a_folder_are_summed_and_the_dead_run_nothing(tmp_path: Path) -> None:
    def run(script: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", f"from coatcheck.telemetry import metrics; {script}"],
            env=os.environ
            | {"PYTHONPATH": str(SOURCE), metrics.MULTIPROCESS_DIR_VARIABLE: str(tmp_path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    record = (
        "from coatcheck.domain.lanes import Lane; import os;"
        "metrics.record_submit_flush({Lane.BULK: 2}); metrics.set_running(Lane.BULK, 3);"
    )
    show = "print(metrics.exposition(None).decode())"
    run(record)
    text = run(record + show)
    assert value(text, "coatcheck_jobs_submitted_total", lane="bulk") == 4
    assert value(text, "coatcheck_worker_running", lane="bulk") == 6
    assert value(text, "coatcheck_database_up") == 0
    for pid in {int(path.stem.rpartition("_")[2]) for path in tmp_path.iterdir()}:
        metrics.forget_process(pid, str(tmp_path))
    after = run(show)
    assert value(after, "coatcheck_jobs_submitted_total", lane="bulk") == 4
    assert value(after, "coatcheck_worker_running", lane="bulk") == 0
