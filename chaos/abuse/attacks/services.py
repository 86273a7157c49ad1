"""The maximum number of registered services, and listings of them."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from chaos.abuse.attack import Attack, Figures, at_least, at_most
from chaos.abuse.target import ATTACKER, Target

_LIST: Final = f"/api/v1/orgs/{ATTACKER}/services"
_HOSTED: Final = f"/api/v1/orgs/{ATTACKER}/workspaces/default/hosted-services"
_SERVICES_MAX: Final = 20
_ANSWER_BYTES_MAX: Final = 64 * 1024
_SECONDS_MAX: Final = 60.0


async def _lists(target: Target) -> Figures:
    """Register services of every size, some of them refused, and list them repeatedly."""
    services, rounds = (24, 5) if target.short else (60, 40)
    deadline = time.monotonic() + _SECONDS_MAX
    registered = refused = largest = listed = 0
    async with target.client(timeout=120) as client:
        for number in range(services):
            for versions in (20, 5):  # too many endpoints, and the maximum
                answer = await client.put(f"{_HOSTED}/s{number}", json=_service(versions))
                registered += answer.is_success
                refused += answer.status_code in (409, 413, 422)
                if answer.is_success:
                    break
        for _ in range(rounds):
            if time.monotonic() > deadline:
                break
            pages = await asyncio.gather(
                *(client.get(_LIST, params={"limit": 200}) for _ in range(4))
            )
            largest = max(largest, *(len(page.content) for page in pages))
            listed = max(listed, *(len(page.json()["items"]) for page in pages))
    return {
        "registered": registered,
        "refused": refused,
        "listed": listed,
        "largest_answer_bytes": largest,
    }


def _service(versions: int) -> dict[str, Any]:
    target = {"type": "http", "url": "http://127.0.0.1:9/"}
    endpoints = [{"method": "POST", "path": f"/p{at}", "target": target} for at in range(100)]
    return {"versions": {str(number + 1): {"endpoints": endpoints} for number in range(versions)}}


def _complaints(figures: Figures) -> list[str]:
    return [
        *at_most(figures, "registered", _SERVICES_MAX),
        *at_least(figures, "refused", 1),
        *at_most(figures, "largest_answer_bytes", _ANSWER_BYTES_MAX),
        *at_most(figures, "rss_growth_mib", 64),
    ]


ATTACKS: Final = (
    Attack(
        name="services-list",
        row=11,
        title="60 services of 2,000 endpoints each, registered as far as allowed, and listed",
        run=_lists,
        complaints=_complaints,
        settings={"SERVICES_MAX": str(_SERVICES_MAX)},
    ),
)
