"""The Prometheus metrics, and the functions that record them.

Each process keeps its own values and writes them to the database every few seconds. The
``/metrics`` of any ``coatcheck serve`` shows the sum of all processes
(``core/process_metrics.py``), because workers listen on no socket. Metrics that come from the
database itself are in ``queue_metrics.py``.

These functions are called once per batch, not once per job: at tens of thousands of jobs a second
even a microsecond each would show. Labels with user-defined values are bounded.

``make reference`` generates docs/reference/metrics.md from this module.
"""

from __future__ import annotations

import resource
import time
from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Literal, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from coatcheck.domain.bounds import CountedBound
from coatcheck.domain.durations import BOUNDS_SECONDS
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.telemetry.job_stats import Counted
from coatcheck.telemetry.snapshots import (
    OTHER,
    Across,
    Labels,
    Snapshot,
    labelled,
    render,
    take_snapshot,
)
from coatcheck.version import __version__


class DeclaredMetric(NamedTuple):
    """The declaration of a metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: Sequence[str]


REGISTRY: Final = CollectorRegistry()
"""All metrics of this process."""

ACROSS: Final[dict[str, Across]] = {}
"""How a gauge is combined over several processes; one not listed here is summed."""

DECLARED: Final[list[DeclaredMetric]] = []
"""All declarations, in order."""

LABEL_VALUES_MAX: Final = 200
"""How many values a user-defined label may have in one process."""


class BatchHistogram(Histogram):
    """A histogram that records many values for little more than the cost of one."""

    def observe_many(self, values: Sequence[float]) -> None:
        touched = Tally(map(partial(bisect_left, self._upper_bounds), values))
        for bucket, count in touched.items():
            self._buckets[bucket].inc(count)
        self._sum.inc(sum(values))

    def add_counts(self, bounds: Sequence[float], counts: Sequence[int]) -> None:
        """Add values that were already counted in buckets with these upper bounds.

        Each of our own bounds must be one of ``bounds``. The sum assumes that each value lies in
        the middle of its bucket.
        """
        lower = 0.0
        for at, count in enumerate(counts):
            upper = bounds[at] if at < len(bounds) else lower
            if count:
                self._buckets[bisect_left(self._upper_bounds, upper)].inc(count)
                self._sum.inc(count * (lower + upper) / 2)
            lower = upper


class Bounded:
    """Limits the number of values of a label; further values become "other"."""

    def __init__(self, values_max: int = LABEL_VALUES_MAX) -> None:
        self._values_max = values_max
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._values_max:
            return OTHER
        self._known.add(value)
        return value


def counter(name: str, text: str, *labels: str) -> Counter:
    DECLARED.append(DeclaredMetric(name, "counter", text, labels))
    return Counter(name, text, labels, registry=REGISTRY)


def gauge(name: str, text: str, *labels: str, across: Across = "sum") -> Gauge:
    ACROSS[name] = across
    DECLARED.append(DeclaredMetric(name, "gauge", text, labels))
    return Gauge(name, text, labels, registry=REGISTRY)


def histogram(name: str, text: str, *labels: str, buckets: Sequence[float]) -> BatchHistogram:
    DECLARED.append(DeclaredMetric(name, "histogram", text, labels))
    return BatchHistogram(name, text, labels, buckets=tuple(buckets), registry=REGISTRY)


_ROWS_BUCKETS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_STATEMENT_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_RUN_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)
_POST_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15)
_REQUEST_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 60)
_LAG_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 3600)
_WAIT_BUCKETS: Final = BOUNDS_SECONDS[0:-1:2]
"""Every second bound of the roll-ups: a millisecond, doubled up to 18 hours."""

# Jobs

_submitted = counter("coatcheck_jobs_submitted_total", "Jobs stored, by lane.", "lane")
_claimed = counter(
    "coatcheck_jobs_claimed_total", "Jobs that workers claimed from the queue, by lane.", "lane"
)
_started = counter(
    "coatcheck_jobs_started_total", "Attempts whose handler was started, by lane.", "lane"
)
_finished = counter(
    "coatcheck_jobs_finished_total",
    "Jobs that a worker finished, by endpoint and final state.",
    "endpoint",
    "state",
)
_ended = counter(
    "coatcheck_jobs_ended_total",
    "Jobs that ended for any reason, by lane and final state.",
    "lane",
    "state",
)
_failures = counter(
    "coatcheck_jobs_failed_total", "Jobs that ended as failed, by error code.", "code"
)
_retried = counter(
    "coatcheck_jobs_retried_total",
    "Attempts that failed and will be retried, by lane.",
    "lane",
)
_rescued = counter(
    "coatcheck_jobs_rescued_total",
    "Jobs reclaimed from workers that died or stopped responding, by lane.",
    "lane",
)
_bounds_met = counter(
    "coatcheck_bounds_met_total",
    "Requests, calls and jobs that hit a limit on what one caller may cost the others, by the name "
    "of the limit (docs/reference/bounds.md).",
    "bound",
)
_refused = counter(
    "coatcheck_results_refused_total",
    "Results that arrived too late and were discarded: the worker no longer owned the job.",
)
_alerts = counter(
    "coatcheck_alerts_total", "Jobs that failed with no attempt left, by endpoint.", "endpoint"
)
_start_seconds = histogram(
    "coatcheck_job_start_seconds",
    "Time from when a job was due until a worker claimed it, by lane. The sum is estimated from "
    "the buckets.",
    "lane",
    buckets=_WAIT_BUCKETS,
)
_run_seconds = histogram(
    "coatcheck_job_run_seconds",
    "Handler run time of attempts that completed, by endpoint.",
    "endpoint",
    buckets=_RUN_BUCKETS,
)
_attempt_seconds = histogram(
    "coatcheck_job_attempt_seconds",
    "Handler run time of attempts that completed or failed, by lane. The sum is estimated from the "
    "buckets.",
    "lane",
    buckets=_WAIT_BUCKETS,
)

# Batched statements

_submit_flush_rows = histogram(
    "coatcheck_submit_flush_rows", "Submissions per statement.", buckets=_ROWS_BUCKETS
)
_finish_flush_rows = histogram(
    "coatcheck_finish_flush_rows",
    "Completions per statement.",
    buckets=_ROWS_BUCKETS,
)
_read_flush_rows = histogram(
    "coatcheck_read_flush_rows",
    "Job reads per statement.",
    buckets=_ROWS_BUCKETS,
)
_claim_seconds = histogram(
    "coatcheck_claim_seconds", "Round-trip time of one claim.", buckets=_STATEMENT_BUCKETS
)
_claimed_jobs = histogram(
    "coatcheck_claimed_jobs",
    "Jobs per claim; 0 means that no job was found.",
    buckets=(0, *_ROWS_BUCKETS),
)
_pool_wait_seconds = histogram(
    "coatcheck_database_pool_wait_seconds",
    "Time that a statement waited for a connection of its process's pool.",
    buckets=_STATEMENT_BUCKETS,
)

# Processes

_processes = gauge("coatcheck_processes", "Live processes, by kind.", "kind")
_version = gauge("coatcheck_version_info", "Live processes, by version.", "version")
_resident_bytes = gauge(
    "coatcheck_process_resident_bytes_max",
    "The largest peak memory of the live processes of a kind.",
    "kind",
    across="max",
)
_cpu_seconds = counter(
    "coatcheck_process_cpu_seconds_total", "CPU time of all processes, by kind.", "kind"
)
_restarts = counter(
    "coatcheck_server_process_restarts_total",
    "Processes of servers that were started again after they had ended unasked.",
)
_running = gauge("coatcheck_worker_running", "Jobs that workers are running, by lane.", "lane")
_poll_seconds = gauge(
    "coatcheck_worker_poll_seconds",
    "How often a worker polls for jobs without a notification; the longest interval. It grows "
    "while the database is unreachable.",
    across="max",
)
_abandoned_threads = gauge(
    "coatcheck_worker_abandoned_threads",
    "Threads whose handler did not stop when its time was up; they cannot be killed. An endpoint "
    "with 16 of them, or a worker with 64, starts no more plain functions.",
)

# HTTP

_requests = counter(
    "coatcheck_http_requests_total",
    "Answered HTTP requests, by method, route and status.",
    "method",
    "route",
    "status",
)
_request_seconds = histogram(
    "coatcheck_http_request_seconds",
    "Time from a request's head to the end of its response, by method and route.",
    "method",
    "route",
    buckets=_REQUEST_BUCKETS,
)

# Webhooks

_webhook_posts = counter(
    "coatcheck_webhook_posts_total",
    "Webhook posts, by what became of the delivery: delivered, retried, exhausted, disabled, or "
    "lost if another server took it over meanwhile.",
    "outcome",
)
_webhook_post_seconds = histogram(
    "coatcheck_webhook_post_seconds",
    "Time of one post, from connecting to the end of the response.",
    buckets=_POST_BUCKETS,
)
_webhook_lag_seconds = histogram(
    "coatcheck_webhook_lag_seconds",
    "Time from an event until its webhook is first posted.",
    buckets=_LAG_BUCKETS,
)
_webhooks_posting = gauge("coatcheck_webhooks_posting", "Webhooks being posted now.")

# Blobs

_sweeps = counter(
    "coatcheck_blob_sweeps_total",
    "Sweeps over all blobs of a kind for blobs without a row.",
    "kind",
)
_swept = counter(
    "coatcheck_blobs_swept_total", "Blobs deleted because they have no row, by kind.", "kind"
)

# Maintenance

_upkeep_failures = counter(
    "coatcheck_upkeep_failures_total",
    "Ticks of maintenance loops that ended with an error, by loop.",
    "loop",
)

# Remotes and language models

_remote_looks = counter(
    "coatcheck_remote_looks_total",
    "Status checks of remote work, by what the remote said: running, completed, failed, unknown, "
    "or unclear.",
    "outcome",
)
_llm_running = gauge(
    "coatcheck_llm_running",
    "Chats sent to a target and not yet fully answered, by target.",
    "target",
)
_llm_target_up = gauge(
    "coatcheck_llm_target_up",
    "0 while a target is known to be unreachable, by target.",
    "target",
    across="min",
)
_llm_first_seconds = histogram(
    "coatcheck_llm_first_object_seconds",
    "Time from sending a chat to the first object of its answer, including loading the model, by "
    "target.",
    "target",
    buckets=_RUN_BUCKETS,
)

_bounded_endpoint: Final = Bounded()
_bounded_code: Final = Bounded()
_requests_to_show: Final[dict[tuple[str, str, int], list[float]]] = {}
_submitted_by_lane: Final = {lane: _submitted.labels(lane.value) for lane in Lane}
_started_by_lane: Final = {lane: _started.labels(lane.value) for lane in Lane}
_running_by_lane: Final = {lane: _running.labels(lane.value) for lane in Lane}
_running_by_worker: Final[dict[Lane, dict[object, int]]] = {lane: {} for lane in Lane}
_poll_by_worker: Final[dict[object, float]] = {}
_abandoned_by_worker: Final[dict[object, int]] = {}
_finished_children: Final[dict[tuple[str, State], Counter]] = {}
_run_seconds_children: Final[dict[str, BatchHistogram]] = {}
_cpu_seconds_shown: float = 0.0
_own_labels: Labels = ()

for _lane in Lane:
    # From the start: a series that does not exist yet has no rate.
    for _by_lane in (_claimed, _retried, _rescued, _start_seconds, _attempt_seconds):
        _by_lane.labels(_lane.value)


def record_submit_flush(rows_by_lane: Mapping[Lane, int]) -> None:
    """Record a statement that inserted this many new jobs."""
    for lane, rows in rows_by_lane.items():
        _submitted_by_lane[lane].inc(rows)
    _submit_flush_rows.observe(sum(rows_by_lane.values()))


def record_claim(seconds: float, jobs: int) -> None:
    """Record a claim's duration and number of jobs."""
    _claim_seconds.observe(seconds)
    _claimed_jobs.observe(jobs)


def record_finish_flush(rows: int) -> None:
    """Record how many completions shared one statement."""
    _finish_flush_rows.observe(rows)


def record_read_flush(rows: int) -> None:
    """Record how many job reads shared one statement."""
    _read_flush_rows.observe(rows)


def record_pool_wait(seconds: float) -> None:
    """Record how long a statement waited for a connection of the pool."""
    _pool_wait_seconds.observe(seconds)


def record_started(lane: Lane, attempts: int) -> None:
    """Record started handlers."""
    _started_by_lane[lane].inc(attempts)


def record_attempts(endpoint: str, run_seconds: Sequence[float]) -> None:
    """Record the run times of an endpoint's handlers."""
    child = _run_seconds_children.get(endpoint)
    if child is None:
        child = _run_seconds.labels(_bounded_endpoint(endpoint))
        _run_seconds_children[endpoint] = child
    child.observe_many(run_seconds)


def record_finished(endpoint: str, state: State, jobs: int = 1) -> None:
    """Record jobs of an endpoint that reached a terminal state."""
    child = _finished_children.get((endpoint, state))
    if child is None:
        child = _finished.labels(_bounded_endpoint(endpoint), state.value)
        _finished_children[endpoint, state] = child
    child.inc(jobs)


def record_job_stats(counted: Counted) -> None:
    """Record job counts since the last call, summed over all organisations."""
    for (_, lane), counts in counted.jobs.items():
        for total, jobs in (
            (_claimed.labels(lane), counts.started),
            (_ended.labels(lane, State.COMPLETED.value), counts.completed),
            (_ended.labels(lane, State.FAILED.value), counts.failed),
            (_ended.labels(lane, State.CANCELLED.value), counts.cancelled),
            (_retried.labels(lane), counts.retried),
            (_rescued.labels(lane), counts.rescued),
        ):
            if jobs:
                total.inc(jobs)
        _start_seconds.labels(lane).add_counts(BOUNDS_SECONDS, counts.waits)
        _attempt_seconds.labels(lane).add_counts(BOUNDS_SECONDS, counts.runs)
    for (_, code), jobs in counted.failures.items():
        _failures.labels(_bounded_code(code)).inc(jobs)


def record_refused_result() -> None:
    """Record a result that arrived too late and was refused."""
    _refused.inc()


def record_bound_met(bound: CountedBound) -> None:
    """Record that a limit was hit."""
    _bounds_met.labels(bound.name).inc()


def record_alert(endpoint: str) -> None:
    """Record a job that failed with no attempt left."""
    _alerts.labels(_bounded_endpoint(endpoint)).inc()


def record_webhook_post(outcome: str, seconds: float) -> None:
    """Record a webhook post: its duration and what became of the delivery."""
    _webhook_posts.labels(outcome).inc()
    _webhook_post_seconds.observe(seconds)


def record_webhook_lag(seconds: float) -> None:
    """Record the time from an event to the first post of its webhook."""
    _webhook_lag_seconds.observe(max(0.0, seconds))


def set_webhooks_posting(posts: int) -> None:
    """Set how many webhooks this process is posting."""
    _webhooks_posting.set(posts)


def record_sweep(kind: str, blobs: int) -> None:
    """Record a sweep over all blobs of a kind, and how many orphans it deleted."""
    _sweeps.labels(kind).inc()
    _swept.labels(kind).inc(blobs)


def record_upkeep_failure(loop: str) -> None:
    """Record a maintenance loop's tick that ended with an error."""
    _upkeep_failures.labels(loop).inc()


def record_remote_look(outcome: str) -> None:
    """Record a status check of remote work and its answer."""
    _remote_looks.labels(outcome).inc()


def set_llm_running(target: str, chats: int) -> None:
    """Set how many chats of a target this process is waiting for."""
    _llm_running.labels(target).set(chats)


def set_llm_target_up(target: str, *, up: bool) -> None:
    """Set whether a target is reachable."""
    _llm_target_up.labels(target).set(1 if up else 0)


def record_llm_first_object(target: str, seconds: float) -> None:
    """Record how long a target took to begin its answer."""
    _llm_first_seconds.labels(target).observe(seconds)


def set_running(lane: Lane, jobs: int, *, worker: object) -> None:
    """Set how many jobs of the lane one of the process's workers is running."""
    _running_by_worker[lane][worker] = jobs
    _show_running(lane)


def set_poll_seconds(seconds: float, *, worker: object) -> None:
    """Set the poll interval of one of the process's workers."""
    _poll_by_worker[worker] = seconds
    _show_poll_seconds()


def set_abandoned_threads(threads: int, *, worker: object) -> None:
    """Set how many threads of one of the process's workers run abandoned handlers."""
    _abandoned_by_worker[worker] = threads
    _show_abandoned_threads()


def forget_worker(worker: object) -> None:
    """Drop the gauges of a worker of this process that has ended."""
    for lane, running in _running_by_worker.items():
        if running.pop(worker, None) is not None:
            _show_running(lane)
    if _poll_by_worker.pop(worker, None) is not None:
        _show_poll_seconds()
    if _abandoned_by_worker.pop(worker, None) is not None:
        _show_abandoned_threads()


def _show_running(lane: Lane) -> None:
    _running_by_lane[lane].set(sum(_running_by_worker[lane].values()))


def _show_poll_seconds() -> None:
    _poll_seconds.set(max(_poll_by_worker.values(), default=0.0))


def _show_abandoned_threads() -> None:
    _abandoned_threads.set(sum(_abandoned_by_worker.values()))


def record_request(method: str, route: str, status: int, seconds: float) -> None:
    """Record an answered HTTP request. ``route`` is the template, never the path: paths have ids.

    It is buffered here and added by ``show_requests``: adding many at once is much cheaper.
    """
    key = (method, route, status)
    times = _requests_to_show.get(key)
    if times is None:
        _requests_to_show[key] = [seconds]
    else:
        times.append(seconds)


def show_requests() -> None:
    """Add the requests recorded since the last call to the metrics."""
    while _requests_to_show:
        (method, route, status), times = _requests_to_show.popitem()
        _requests.labels(method, route, status).inc(len(times))
        _request_seconds.labels(method, route).observe_many(times)


def name_server_process(number: int, *, is_restarted: bool) -> None:
    """Record that this is one of several processes of a server, and perhaps took one's place."""
    global _own_labels
    _own_labels = (("process", str(number)),)
    if is_restarted:
        _restarts.inc()


def snapshot(kind: str) -> Snapshot:
    """All metrics of this process now. ``kind`` is the kind of process."""
    global _cpu_seconds_shown
    show_requests()
    _processes.labels(kind).set(1)
    _version.labels(__version__).set(1)
    # ru_maxrss is in kilobytes on Linux.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    _resident_bytes.labels(kind).set(peak)
    used = time.process_time()
    _cpu_seconds.labels(kind).inc(max(0.0, used - _cpu_seconds_shown))
    _cpu_seconds_shown = used
    return take_snapshot(REGISTRY, ACROSS)


def exposition(kind: str = "serve") -> bytes:
    """This process's own metrics as Prometheus text, with Python's standard process metrics.

    If it is one of several processes of a server, all have the label ``process``: whoever asks
    their address is answered by another one each time.
    """
    python = CollectorRegistry()
    ProcessCollector(registry=python)
    PlatformCollector(registry=python)
    own = (snapshot(kind), take_snapshot(python, {}))
    return render(*(labelled(each, _own_labels) for each in own))
