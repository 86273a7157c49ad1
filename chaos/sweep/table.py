"""The table of a sweep: a row for each crash point, a column for each victim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from chaos.sweep.passes import PASSES, Struck
from coatcheck.crash import CRASH_POINTS

OF_SERVERS: Final = frozenset(
    {
        *("submit", "hand_in", "cancel", "look", "create_batch", "cancel_batch", "rerun_batch"),
        *("serve", "deliver", "meter"),
    }
)
"""Roles of the test deployment that act as a server, some of them with one task only."""

OF_UPKEEP: Final = frozenset(
    {
        "stage.updated_not_committed",
        "rescue.updated_not_committed",
        "expire.updated_not_committed",
        "prune.updated_not_committed",
        "prune.rows_deleted_blobs_not",
        "batch.completed_not_committed",
        "batch.completed_not_notified",
        "batch.remove_chunk_deleted",
        "reconcile.before_resubmit",
    }
)
"""Points that the maintenance of both servers and workers passes."""


def cell(point: str, name: str, struck: Sequence[Struck]) -> str:
    """The result of a point with a victim: passed or failed, in which role, or why it is empty."""
    here = [each for each in struck if each.point == point]
    failed = [each for each in here if each.outcome == "failed"]
    if failed:
        return f"FAILED ({len(failed)} of {len(here)})"
    passed = [each for each in here if each.outcome == "passed"]
    if passed:
        return f"passed {len(passed)} ({', '.join(sorted({kind(each.role) for each in passed}))})"
    skipped = [each for each in here if each.outcome == "skipped"]
    return skipped[0].detail if skipped else why_not(point, name)


def kind(role: str) -> str:
    """The part of a deployment that a role represents."""
    if role == "upkeep":
        return "maintenance"
    return "server" if role in OF_SERVERS else "worker"


def why_not(point: str, name: str) -> str:
    """Why a victim is not tested at a point."""
    if name in ("server", "worker") and point not in OF_UPKEEP:
        return "not a point of maintenance"
    return "NOT STRUCK"


def is_whole(results: Mapping[str, Sequence[Struck]]) -> bool:
    """Whether every point was tested with the requested victims, and all passed."""
    if any(each.outcome == "failed" for struck in results.values() for each in struck):
        return False  # also a test without a crash point, or one that failed before it
    cells = [cell(point, name, results[name]) for point in CRASH_POINTS for name in results]
    return not any(each.startswith("NOT STRUCK") for each in cells)


def markdown(results: Mapping[str, Sequence[Struck]]) -> str:
    names = list(results)
    lines = [
        "# The crash sweep",
        "",
        "Each named crash point, and its victims. `passed n (who)`: in n scenarios,"
        " in which a server, a worker or the maintenance of either passed the point.",
        "",
        f"| crash point | {' | '.join(PASSES[name].title for name in names)} |",
        f"| --- |{' --- |' * len(names)}",
    ]
    for point in sorted(CRASH_POINTS):
        cells = [cell(point, name, results[name]) for name in names]
        lines.append(f"| `{point}` | {' | '.join(cells)} |")
    failed = [each for struck in results.values() for each in struck if each.outcome == "failed"]
    if failed:
        lines += ["", "## What failed", ""]
        lines += [f"- `{each.test}`: {each.detail.splitlines()[0][:300]}" for each in failed]
    return "\n".join(lines) + "\n"
