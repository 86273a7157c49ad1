"""What the database would refuse is refused before it joins others in one statement."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from coatcheck.core import Engine, Submission
from coatcheck.domain.errors import InvalidSubmission
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from tests.db.rows import ENDPOINT

NOON = datetime(2030, 1, 1, 12)  # noqa: DTZ001 - without a time zone, to be refused
HALF_A_SURROGATE = "\ud800"

REFUSED: dict[str, dict[str, Any]] = {
    "no org": {"org": ""},
    "an org of 256 characters": {"org": "x" * 256},
    "NUL in an org": {"org": "a\0b"},
    "half a surrogate in an org": {"org": HALF_A_SURROGATE},
    "NUL in a queue key": {"queue_key": "a\0b"},
    "half a surrogate in a queue key": {"queue_key": HALF_A_SURROGATE},
    "no queue key, not even an empty one": {"queue_key": None},
    "NUL in a queue key by its old name": {"flow": "a\0b"},
    "half a surrogate in a queue key by its old name": {"flow": HALF_A_SURROGATE},
    "no queue key by its old name": {"flow": None},
    "two queue keys": {"queue_key": "a", "flow": "b"},
    "an empty key": {"idempotency_key": ""},
    "a key of 256 characters": {"idempotency_key": "x" * 256},
    "NUL in a key": {"idempotency_key": "a\0b"},
    "half a surrogate in a key": {"idempotency_key": HALF_A_SURROGATE},
    "an empty request id": {"request_id": ""},
    "half a surrogate in a request id": {"request_id": HALF_A_SURROGATE},
    "an unknown lane": {"lane": "slow"},
    "negative retries": {"retries": -1},
    "too many retries": {"retries": 1_001},
    "half a retry": {"retries": 2.5},
    "a negative delay": {"delay": -0.1},
    "a delay that is no number": {"delay": float("nan")},
    "an endless delay": {"delay": float("inf")},
    "no time to run": {"timeout": 0},
    "endless retention": {"keep_completed": float("inf")},
    "negative retention": {"keep_failed": -1},
    "a moment without a time zone": {"run_at": NOON},
    "a deadline without a time zone": {"start_deadline": NOON},
    "a payload that is no JSON": {"payload": object()},
    "a payload that is too large": {"payload": b"x" * (PAYLOAD_BYTES_MAX + 1)},
}

ACCEPTED: dict[str, dict[str, Any]] = {
    "the shortest timeout": {"timeout": 5e-324},
    "a delay that is a boolean": {"delay": True},
    "an offset that PostgreSQL does not know": {
        "run_at": NOON.replace(tzinfo=timezone(timedelta(hours=23)))
    },
    "an offset of microseconds": {
        "run_at": NOON.replace(tzinfo=timezone(timedelta(microseconds=1)))
    },
    "the first moment there is": {"start_deadline": datetime.min.replace(tzinfo=UTC)},
    "the last moment there is": {"run_at": datetime.max.replace(tzinfo=UTC)},
    "the longest retention": {"keep_completed": 2**31 - 1, "keep_failed": 2**31 - 1},
    "the longest delay": {"delay": 2**31 - 1},
    "the longest names": {
        "org": "ö" * 255,
        "queue_key": "ö" * 255,
        "idempotency_key": "ö" * 255,
    },
    "a payload that is null": {"payload": None},
    "quotes and backslashes": {
        "org": "'\"\\{},",
        "queue_key": "'\"\\{},",
        "request_id": "'\"\\{}",
    },
}


@pytest.mark.parametrize("options", REFUSED.values(), ids=REFUSED)
async def test_it_is_refused_and_those_beside_it_are_not(
    options: dict[str, Any], engine: Engine
) -> None:
    beside = [asyncio.create_task(engine.submit(ENDPOINT)) for _ in range(3)]
    with pytest.raises(InvalidSubmission):
        await engine.submit(ENDPOINT, **options)
    assert all(ticket.created for ticket in await asyncio.gather(*beside))


@pytest.mark.parametrize("options", ACCEPTED.values(), ids=ACCEPTED)
async def test_it_is_strange_and_accepted(options: dict[str, Any], engine: Engine) -> None:
    ticket = await engine.submit(ENDPOINT, **options)
    view = await engine.get(ticket.id, org=options.get("org", "default"))
    assert view.org == options.get("org", "default")
    assert view.queue_key == options.get("queue_key", "")


async def test_of_a_bulk_submission_with_one_bad_part_nothing_is_created(engine: Engine) -> None:
    with pytest.raises(InvalidSubmission):
        await engine.submit_many([Submission(ENDPOINT), Submission(ENDPOINT, org="")])
    assert await engine.list() == []


async def test_an_endpoint_has_a_name(engine: Engine) -> None:
    for name in ("", "x" * 256, HALF_A_SURROGATE):
        with pytest.raises(InvalidSubmission, match=r"^endpoint: "):
            await engine.submit(name)
