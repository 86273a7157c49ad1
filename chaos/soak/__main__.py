"""Runs a soak: ``python -m chaos.soak [--minutes 60] [--seed N] [--rate 20] [--faults kills]``.

A deployment under the mixed load of all products, with a retention of three minutes, so that data
is also deleted. Writes samples.csv, verdict.md, soak.png and history.ndjson. Exits with 1 if
something grows, if the load saw a violation or waited in vain, or if the run was too short to be
judged.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import uvloop

from chaos.deployment import Deployment
from chaos.faults import Striker
from chaos.history import History, read
from chaos.load.load import Load
from chaos.schedule import GROUPS, KINDS, plan
from chaos.soak import picture, verdict
from chaos.soak.samples import AWAY, Sampler
from chaos.world import World

REPORTS: Final = Path("build", "soak")
HISTORY: Final = "history.ndjson"
EVERY_SECONDS: Final = 10.0
SETTLE_SECONDS: Final = 120.0
SEEDS: Final = 1_000_000
SETTINGS: Final = {
    # Short, and longer than the load takes to read its jobs.
    "keep_completed_seconds": "180",
    "keep_failed_seconds": "180",
    "llm_keep_seconds": "180",
    # The usual values: a soak tests normal operation for long.
    "lane_ack_seconds": "urgent=30,standard=120,bulk=300",
}

Sample = dict[str, float]


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    seed: int = random.randrange(SEEDS) if options.seed is None else options.seed
    stamp = datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S")
    report: Path = options.report or REPORTS / f"{stamp}-{seed}"
    report.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="coatcheck-soak-"))
    folder.chmod(0o711)  # PostgreSQL's account needs access to its own folder
    print(f"seed {seed}; {options.minutes:g} min; report: {report}", flush=True)
    rows: list[Sample] = []
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_soak(folder, report, seed, options, rows))
    finally:
        # Also for an interrupted run.
        title = f"{options.minutes:g} min, {options.rate:g} calls a second, seed {seed}"
        history = folder / HISTORY
        seen = _seen_by_the_load(history)
        status = _report(report, rows, title, seen) if rows else 1
        if history.exists():
            shutil.copy(history, report / HISTORY)
        shutil.rmtree(folder, ignore_errors=True)
    return status


async def _soak(
    folder: Path, report: Path, seed: int, options: argparse.Namespace, rows: list[Sample]
) -> None:
    """Add samples to ``rows`` while the load runs."""
    history = History(folder / HISTORY)
    try:
        async with (
            World(history, seed) as world,
            Deployment(
                folder, seed=seed, history=history, world=world, servers=2, workers=3, **SETTINGS
            ) as deployment,
        ):
            load = Load(deployment.urls, deployment.keys, world, history, seed, rate=options.rate)
            seconds, until = options.minutes * 60, asyncio.Event()
            striker = Striker(deployment, plan(seed, seconds, only=options.faults), history)
            asyncio.get_running_loop().call_later(seconds, until.set)
            async with asyncio.TaskGroup() as acting:
                acting.create_task(load.run(until))
                acting.create_task(striker.run(until))
                acting.create_task(_sample(deployment, load, history, report, rows, until))
            await deployment.settle()
            await load.settle(SETTLE_SECONDS, look_again=False)
    finally:
        history.close()


async def _sample(
    deployment: Deployment,
    load: Load,
    history: History,
    report: Path,
    rows: list[Sample],
    until: asyncio.Event,
) -> None:
    sampler = Sampler(deployment, history, EVERY_SECONDS)
    while not until.is_set():
        try:
            await asyncio.wait_for(until.wait(), EVERY_SECONDS)
        except TimeoutError:
            try:
                rows.append(await sampler.sample())
            except AWAY:
                continue  # during a planned fault: a gap in the series
            _write(report / "samples.csv", rows)
            if len(rows) % 6 == 0:
                print(_line(rows[-1], load.waiting), flush=True)


def _line(row: Sample, waiting: int) -> str:
    members = [name for name in row if name.startswith(("server-", "worker-"))]
    memory = sum(row[name] for name in members if name.endswith(" MB"))
    return (
        f"{row['seconds'] / 60:5.1f} min: {row['ended a second']:5.1f} ended a second, "
        f"{waiting} scenarios run, "
        f"{memory:.0f} MB in processes, {row['tables MB'] + row['indexes MB']:.0f} MB in tables, "
        f"claimed within {row.get('claim p95 ms', float('nan')):.0f} ms (95 %)"
    )


def _write(path: Path, rows: Sequence[Sample]) -> None:
    """Write all samples each time, so that an interrupted soak keeps them."""
    partial = path.with_suffix(".partial")
    with partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, verdict.names(rows), restval="")
        writer.writeheader()
        writer.writerows({name: round(value, 3) for name, value in row.items()} for row in rows)
    partial.replace(path)


def _seen_by_the_load(history: Path) -> list[str]:
    """Violations and unfinished waits that the load recorded."""
    notes = read(history) if history.exists() else []
    seen = []
    for note in notes:
        if note["kind"] == "violation":
            seen.append(f"{note.get('check')}: {note.get('detail')}")
        if note["kind"] == "settled" and note["unsettled"]:
            seen.append(f"{note['unsettled']} callers waited in vain")
    return seen


def _report(report: Path, rows: Sequence[Sample], title: str, seen: Sequence[str]) -> int:
    told = verdict.markdown(rows, title, seen)
    (report / "verdict.md").write_text(told)
    picture.draw(report / "soak.png", rows, title)
    print(told)
    print(f"report: {report}")
    judged = verdict.judged(rows)
    return 1 if seen or not judged or any(each.slope.grows for each in judged) else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos.soak")
    parser.add_argument("--minutes", type=float, default=60.0, help="duration (60)")
    parser.add_argument("--seed", type=int, help="seed of the load and the faults")
    parser.add_argument("--rate", type=float, default=20.0, help="calls per second (20)")
    known = ", ".join((*KINDS, *GROUPS))
    parser.add_argument(
        "--faults", type=_kinds, default=(), help=f"kinds of faults (default: none): {known}"
    )
    parser.add_argument(
        "--report", type=Path, help=f"folder of the report (default: under {REPORTS})"
    )
    return parser.parse_args(arguments)


def _kinds(text: str) -> tuple[str, ...]:
    asked = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := set(asked) - {*KINDS, *GROUPS}:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
    wanted = {kind for name in asked for kind in GROUPS.get(name, (name,))}
    return tuple(kind for kind in KINDS if kind in wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
