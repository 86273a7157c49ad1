"""Celery with Redis as broker and result backend."""

import asyncio
import itertools
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import redis
from celery.result import AsyncResult

from bench.contenders.celery_app import QUEUE, SETTINGS, make_app
from bench.contenders.contract import Ability, Contender, Enqueued, Kept, StoreKind
from bench.payload import payload_object

PRELOAD_THREADS = 4

CONTENDER = Contender(
    name="celery",
    label="Celery/Redis",
    store=StoreKind.REDIS,
    abilities=frozenset({Ability.WAIT}),
    client_command=(sys.executable, "-m", "bench.client_host", "bench.contenders.celery"),
    worker_command=(
        sys.executable,
        *("-m", "celery", "--quiet", "-A", "bench.contenders.celery_worker", "worker"),
        *("--pool", "solo", "--loglevel", "error"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    ),
    distribution="celery",
    settings=(
        "redis-py with hiredis, unix socket; JSON serialiser; results kept in Redis",
        f"producer: 64 threads, broker_pool_limit={SETTINGS['broker_pool_limit']} (its default; "
        "64 connections were slower); it has no bulk API",
        "worker: pool solo, gossip, mingle and heartbeat off, "
        f"worker_prefetch_multiplier={SETTINGS['worker_prefetch_multiplier']}",
    ),
    keeps="status and result in Redis for a day; not the payload",
    environment={},
    drain_guess_per_second=700,
)


class Client:
    """Celery's producer API blocks, so concurrency is threads, as its users have it."""

    async def open(self, address: str) -> None:
        self._app, self._noop = make_app(address)
        self._redis = redis.Redis.from_url(address)
        self._accepted = 0

    async def install(self) -> None:
        """Redis needs no tables."""

    async def submit(self, number: int) -> AsyncResult:
        return self._submit(number)

    def _submit(self, number: int) -> AsyncResult:
        return self._noop.apply_async(kwargs=payload_object(number))

    async def enqueue_concurrently(self, in_flight: int, seconds: float) -> Enqueued:
        return await asyncio.to_thread(self._enqueue_in_threads, in_flight, seconds, None)

    async def enqueue_bulk(self, jobs: int, seconds_max: float) -> Enqueued:
        """Not a bulk API (Celery has none): it preloads a drain, and is not reported."""
        return await asyncio.to_thread(self._enqueue_in_threads, PRELOAD_THREADS, seconds_max, jobs)

    def _enqueue_in_threads(self, threads: int, seconds: float, jobs: int | None) -> Enqueued:
        numbers = itertools.count() if jobs is None else iter(range(jobs))
        lock = threading.Lock()
        start = time.perf_counter()

        def next_number() -> int | None:
            with lock:
                return next(numbers, None)

        def submitter() -> int:
            accepted = 0
            while time.perf_counter() - start < seconds and (number := next_number()) is not None:
                self._submit(number)
                accepted += 1
            return accepted

        with ThreadPoolExecutor(threads) as pool:
            accepted = sum(pool.map(lambda _: submitter(), range(threads)))
        self._accepted += accepted
        return Enqueued(accepted, time.perf_counter() - start)

    async def wait(self, submitted: object) -> None:
        assert isinstance(submitted, AsyncResult)
        await asyncio.to_thread(submitted.get, timeout=30)

    async def unfinished(self) -> int:
        """Not delivered yet, or, once all are delivered, without a stored result."""
        waiting = int(self._redis.llen(QUEUE)) + int(self._redis.hlen("unacked"))
        return waiting if waiting > 0 else self._accepted - self._results()

    async def kept(self) -> Kept:
        return Kept(records=self._results(), results=self._results())

    def _results(self) -> int:
        return sum(1 for _ in self._redis.scan_iter("celery-task-meta-*", count=10_000))

    async def close(self) -> None:
        self._redis.close()
        self._app.close()
