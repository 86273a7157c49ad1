"""The gateway load's jobs: their inputs and expected final states."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SERVICE: Final = "chaos"
UPSTREAM_SERVICE: Final = "chaos-upstream"
_LONGER_THAN_A_LEASE_SECONDS: Final = 8.0

KINDS: Final[Mapping[str, int]] = {
    "quick": 30,
    "slow": 15,
    "longer-than-a-lease": 3,
    "threaded": 8,
    "isolated": 5,
    "flaky": 8,
    "doomed": 4,
    "exhausting": 2,
    "reporting": 8,
    "limited": 5,
    "upstream": 8,
    "synchronous": 4,
}
"""The relative frequency of each kind."""


@dataclass(frozen=True)
class Work:
    """One job to submit. ``end`` is its final state unless it is cancelled."""

    kind: str
    path: str
    body: dict[str, Any]
    service: str = SERVICE
    end: str = "completed"


def drawn(rng: random.Random, word: str, log: str) -> Work:
    """Random work with its canary."""
    (kind,) = rng.choices(list(KINDS), weights=list(KINDS.values()))
    body: dict[str, Any] = {"word": word, "log": log}
    match kind:
        case "slow" | "threaded" | "isolated" | "limited":
            return Work(kind, f"/async/{kind}", body | {"seconds": rng.uniform(0, 3)})
        case "longer-than-a-lease":
            return Work(kind, "/async/slow", body | {"seconds": _LONGER_THAN_A_LEASE_SECONDS})
        case "flaky":
            return Work(kind, "/async/flaky", body | {"failures": rng.randint(1, 3)})
        case "doomed" | "exhausting":
            return Work(kind, f"/async/{kind}", body, end="failed")
        case "reporting":
            return Work(kind, "/async/reporting", body | {"lines": rng.randint(1, 20)})
        case "upstream":
            return _upstream(rng, word)
        case "synchronous":
            return Work(kind, "/quick", body)
        case _:
            return Work(kind, "/async/quick", body)


def _upstream(rng: random.Random, word: str) -> Work:
    (said,) = rng.choices(["succeed", "stumble", "refuse"], weights=[7, 2, 1])
    body = {"word": word, "seconds": rng.uniform(0, 1.5), "end": said}
    end = "failed" if said == "refuse" else "completed"
    return Work("upstream", "/async/work", body, service=UPSTREAM_SERVICE, end=end)
