"""The features that are measured: each is a way of submitting jobs, and what is done before."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.ablation.amounts import Amounts
from bench.payload import payload_bytes
from coatcheck import Engine, Service, Submission
from coatcheck.domain.ids import new_id
from coatcheck.domain.job import ConcurrencyLimit
from coatcheck.domain.lanes import Lane
from coatcheck.products.batches.model import NewBatch, NewPart, NewTask
from coatcheck.products.batches.repository import BatchRepository

service = Service("work")
ENDPOINT = "work.post__run"
_WEBHOOK_URL = "https://receiver.example/webhook"
_ANOTHER = "another organisation"
_SUBMITTED_TOGETHER = 10_000
_AN_HOUR = timedelta(hours=1)
_TWO_HOURS_SECONDS = 7_200

Submit = Callable[[Engine, Amounts], Awaitable[None]]
Prepare = Callable[[Engine, Amounts], Awaitable[None]]
Options = Callable[[int], Mapping[str, Any]]
"""The options of the job with this number."""


@service.post("/run")
async def run(n: int, pad: str) -> None:
    """The endpoint of all jobs. Nothing calls it."""


@dataclass(frozen=True)
class Variant:
    key: str
    title: str
    submit: Submit


def organisations(amounts: Amounts) -> list[str]:
    return [f"org {number:02}" for number in range(amounts.organisations)]


def jobs(options: Options = lambda _: {}, *, after: Prepare | None = None) -> Submit:
    """Submits jobs of all organisations by turns, each with these options."""

    async def submit(engine: Engine, amounts: Amounts) -> None:
        if after is not None:
            await after(engine, amounts)
        orgs = organisations(amounts)
        for first in range(0, amounts.jobs, _SUBMITTED_TOGETHER):
            await engine.submit_many(
                [
                    Submission(
                        ENDPOINT,
                        payload_bytes(number),
                        org=orgs[number % len(orgs)],
                        **options(number),
                    )
                    for number in range(first, min(first + _SUBMITTED_TOGETHER, amounts.jobs))
                ]
            )

    return submit


async def tasks(engine: Engine, amounts: Amounts) -> None:
    """Submits a batch of each organisation, of as many tasks as the others have jobs."""
    orgs = organisations(amounts)
    for at, org in enumerate(orgs):
        await engine.extension(BatchRepository).create(
            NewBatch(
                org=org,
                uuid=new_id(),
                run=new_id(),
                owner="*",
                service=service.name,
                service_endpoint="/run",
                endpoint=ENDPOINT,
                usage_queue_key="",
                lane=Lane.STANDARD.value,
                failures_max=3,
                is_open=False,
                payload_prefix=b"",
                payload_suffix=b"",
                concurrency=None,
                rate_per_second=None,
                rate_key=None,
                rate_key_per_second=None,
                webhook_url=None,
                webhook_events=(),
                metadata=None,
                keep_seconds=_TWO_HOURS_SECONDS,
                idempotency_key=None,
                fingerprint=None,
                request_id=None,
            ),
            NewPart(new_id(), "inline"),
            [NewTask(payload_bytes(number)) for number in range(at, amounts.jobs, len(orgs))],
        )


async def endpoints(engine: Engine, amounts: Amounts) -> None:
    for org in organisations(amounts):
        await engine.webhooks.create_endpoint(org, _WEBHOOK_URL, ["*"])


async def endpoint_of_another(engine: Engine, amounts: Amounts) -> None:
    await engine.webhooks.create_endpoint(_ANOTHER, _WEBHOOK_URL, ["*"])


async def limit_of_another(engine: Engine, amounts: Amounts) -> None:
    await engine.set_limit(ConcurrencyLimit(_ANOTHER, "org", "", 1))


PLAIN = Variant("plain", "plain", jobs())
VARIANTS = (
    PLAIN,
    Variant("keys", "an idempotency key each", jobs(lambda n: {"idempotency_key": f"key {n}"})),
    Variant("webhook", "a webhook each", jobs(lambda _: {"webhook_url": _WEBHOOK_URL})),
    Variant("endpoint", "a webhook endpoint of their organisation", jobs(after=endpoints)),
    Variant(
        "endpoint_elsewhere",
        "a webhook endpoint of another organisation",
        jobs(after=endpoint_of_another),
    ),
    Variant(
        "limit_elsewhere",
        "a concurrency limit on another organisation",
        jobs(after=limit_of_another),
    ),
    Variant("tasks", "tasks of a batch", tasks),
    Variant(
        "deadline",
        "a start deadline each",
        jobs(lambda _: {"start_deadline": datetime.now(UTC) + _AN_HOUR}),
    ),
    Variant(
        "retention",
        "retention times of their own",
        jobs(lambda _: {"keep_completed": _TWO_HOURS_SECONDS, "keep_failed": _TWO_HOURS_SECONDS}),
    ),
)
