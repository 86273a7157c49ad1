"""The product's Prometheus metrics, and the few functions that set them.

A worker listens on no socket. Processes that share a folder named by ``PROMETHEUS_MULTIPROC_DIR``
keep their numbers there (prometheus-client's own multi-process mode), and the ``/metrics`` of any
``coatcheck serve`` among them shows the sum; ``coatcheck up`` sets that up by itself.

Everything here is called once a batch, not once a job: at tens of thousands of jobs a second even a
microsecond each would show.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
    multiprocess,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State

MULTIPROCESS_DIR_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"

QueueDepth = Mapping[tuple[Lane, State], int]

_ROWS_BUCKETS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_STATEMENT_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_RUN_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)

_POST_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15)

_REGISTRY: Final = CollectorRegistry()


class BatchHistogram(Histogram):
    """A histogram that takes many values for little more than the price of one."""

    def observe_many(self, values: Sequence[float]) -> None:
        touched = Tally(bisect_left(self._upper_bounds, value) for value in values)
        for bucket, count in touched.items():
            self._buckets[bucket].inc(count)
        self._sum.inc(sum(values))


_submitted = Counter(
    "coatcheck_jobs_submitted_total", "Jobs stored, by lane.", ["lane"], registry=_REGISTRY
)
_submit_flush_rows = Histogram(
    "coatcheck_submit_flush_rows",
    "Submissions that shared one statement.",
    buckets=_ROWS_BUCKETS,
    registry=_REGISTRY,
)
_claim_seconds = Histogram(
    "coatcheck_claim_seconds",
    "Time of one claim's round trip.",
    buckets=_STATEMENT_BUCKETS,
    registry=_REGISTRY,
)
_claimed_jobs = Histogram(
    "coatcheck_claimed_jobs",
    "Jobs that one claim brought; 0 is a look in vain.",
    buckets=(0, *_ROWS_BUCKETS),
    registry=_REGISTRY,
)
_finished = Counter(
    "coatcheck_jobs_finished_total",
    "Jobs that a worker brought to their end, by endpoint and final state.",
    ["endpoint", "state"],
    registry=_REGISTRY,
)
_alerts = Counter(
    "coatcheck_alerts_total",
    "Jobs that failed with no attempt left, by endpoint.",
    ["endpoint"],
    registry=_REGISTRY,
)
_run_seconds = BatchHistogram(
    "coatcheck_job_run_seconds",
    "Time in the handler, one value an attempt, by endpoint.",
    ["endpoint"],
    buckets=_RUN_BUCKETS,
    registry=_REGISTRY,
)
_running = Gauge(
    "coatcheck_worker_running",
    "Jobs that the workers run now, by lane.",
    ["lane"],
    multiprocess_mode="livesum",
    registry=_REGISTRY,
)
_requests = Counter(
    "coatcheck_http_requests_total",
    "Answered HTTP requests, by method, route and status.",
    ["method", "route", "status"],
    registry=_REGISTRY,
)

_webhook_posts = Counter(
    "coatcheck_webhook_posts_total",
    "Posts of webhooks, by what became of the delivery: delivered, retried, exhausted, disabled, "
    "or lost, if another server took it over meanwhile.",
    ["outcome"],
    registry=_REGISTRY,
)
_webhook_post_seconds = Histogram(
    "coatcheck_webhook_post_seconds",
    "Time of one post, from its connection to the end of its answer.",
    buckets=_POST_BUCKETS,
    registry=_REGISTRY,
)
_webhooks_posting = Gauge(
    "coatcheck_webhooks_posting",
    "Webhooks that are being posted now.",
    multiprocess_mode="livesum",
    registry=_REGISTRY,
)

_remote_looks = Counter(
    "coatcheck_remote_looks_total",
    "Questions about work that is done elsewhere, by what the remote said: running, completed, "
    "failed, unknown, or unclear.",
    ["outcome"],
    registry=_REGISTRY,
)

_llm_running = Gauge(
    "coatcheck_llm_running",
    "Chats that were sent to a target and have not been answered whole, by target.",
    ["target"],
    multiprocess_mode="livesum",
    registry=_REGISTRY,
)
_llm_target_up = Gauge(
    "coatcheck_llm_target_up",
    "0 while a target is known to be away, by target.",
    ["target"],
    multiprocess_mode="livemin",
    registry=_REGISTRY,
)
_llm_first_seconds = Histogram(
    "coatcheck_llm_first_object_seconds",
    "Time from sending a chat to the first object of its answer, the loading of its model "
    "included, by target.",
    ["target"],
    buckets=_RUN_BUCKETS,
    registry=_REGISTRY,
)

_requests_to_show: Final[dict[tuple[str, str, int], int]] = {}
_submitted_by_lane: Final = {lane: _submitted.labels(lane.value) for lane in Lane}
_running_by_lane: Final = {lane: _running.labels(lane.value) for lane in Lane}
_running_by_worker: dict[Lane, dict[int, int]] = {lane: {} for lane in Lane}
_finished_children: Final[dict[tuple[str, State], Counter]] = {}
_run_seconds_children: Final[dict[str, BatchHistogram]] = {}


def record_submit_flush(rows_by_lane: Mapping[Lane, int]) -> None:
    """One statement stored these many new jobs."""
    for lane, rows in rows_by_lane.items():
        _submitted_by_lane[lane].inc(rows)
    _submit_flush_rows.observe(sum(rows_by_lane.values()))


def record_claim(seconds: float, jobs: int) -> None:
    """One claim took so long and brought so many jobs."""
    _claim_seconds.observe(seconds)
    _claimed_jobs.observe(jobs)


def record_attempts(endpoint: str, run_seconds: Sequence[float]) -> None:
    """Handlers of one endpoint ran for these times."""
    child = _run_seconds_children.get(endpoint)
    if child is None:
        child = _run_seconds_children[endpoint] = _run_seconds.labels(endpoint)
    child.observe_many(run_seconds)


def record_finished(endpoint: str, state: State, jobs: int = 1) -> None:
    """So many jobs of an endpoint reached a terminal state."""
    child = _finished_children.get((endpoint, state))
    if child is None:
        child = _finished.labels(endpoint, state.value)
        _finished_children[endpoint, state] = child
    child.inc(jobs)


def record_alert(endpoint: str) -> None:
    """A job of an endpoint failed with no attempt left."""
    _alerts.labels(endpoint).inc()


def record_webhook_post(outcome: str, seconds: float) -> None:
    """One webhook was posted, took so long, and this became of its delivery."""
    _webhook_posts.labels(outcome).inc()
    _webhook_post_seconds.observe(seconds)


def set_webhooks_posting(posts: int) -> None:
    """This process posts so many webhooks now."""
    _webhooks_posting.set(posts)


def record_remote_look(outcome: str) -> None:
    """A remote was asked how some work stands, and said this."""
    _remote_looks.labels(outcome).inc()


def set_llm_running(target: str, chats: int) -> None:
    """This process waits for so many chats of a target now."""
    _llm_running.labels(target).set(chats)


def set_llm_target_up(target: str, *, up: bool) -> None:
    """A target answers, or is away."""
    _llm_target_up.labels(target).set(1 if up else 0)


def record_llm_first_object(target: str, seconds: float) -> None:
    """A target took so long to begin its answer."""
    _llm_first_seconds.labels(target).observe(seconds)


def set_running(lane: Lane, jobs: int, *, worker: int = 0) -> None:
    """One of the process's workers, known by a number, runs so many jobs of the lane now."""
    running = _running_by_worker[lane]
    running[worker] = jobs
    _running_by_lane[lane].set(sum(running.values()))


def record_request(method: str, route: str, status: int) -> None:
    """One HTTP request was answered. ``route`` is the template, never the path: it has ids.

    It is counted here and shown after ``show_requests``: writing each into the file that the
    processes share would be a twentieth of what a request costs.
    """
    key = (method, route, status)
    _requests_to_show[key] = _requests_to_show.get(key, 0) + 1


def show_requests() -> None:
    """Add the requests that were recorded since the last time."""
    while _requests_to_show:
        (method, route, status), requests = _requests_to_show.popitem()
        _requests.labels(method, route, status).inc(requests)


def exposition(depth: QueueDepth | None) -> bytes:
    """Everything as Prometheus text. ``depth`` is None while the database cannot be asked."""
    show_requests()
    scraped = CollectorRegistry()
    scraped.register(_DatabaseCollector(depth))
    if MULTIPROCESS_DIR_VARIABLE in os.environ:
        multiprocess.MultiProcessCollector(scraped)  # type: ignore[no-untyped-call]
        return generate_latest(scraped)
    return generate_latest(scraped) + generate_latest(_REGISTRY)


def forget_process(pid: int, folder: str) -> None:
    """Drop what a dead process said of the present; its counts stay."""
    multiprocess.mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]


class _DatabaseCollector(Collector):
    """What only the database knows, as of this scrape."""

    def __init__(self, depth: QueueDepth | None) -> None:
        self._depth = depth

    def collect(self) -> Iterable[GaugeMetricFamily]:
        yield GaugeMetricFamily(
            "coatcheck_database_up",
            "1 if the database answered this scrape.",
            value=0 if self._depth is None else 1,
        )
        if self._depth is None:
            return
        depth = GaugeMetricFamily(
            "coatcheck_queue_depth",
            "Jobs that have not ended, by lane and state.",
            labels=["lane", "state"],
        )
        for (lane, state), jobs in self._depth.items():
            depth.add_metric([lane.value, state.value], jobs)
        yield depth


if MULTIPROCESS_DIR_VARIABLE not in os.environ:
    ProcessCollector(registry=_REGISTRY)
    PlatformCollector(registry=_REGISTRY)
