"""The command line options of a chaos run."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.schedule import GROUPS, KINDS

SURFACES: Final = ("gateway", "graphs", "batches", "llm", "speech")
SWEEP: Final = "sweep"
REPORTS: Final = Path("build", "chaos")
_SEED_MAX: Final = 1_000_000


@dataclass(frozen=True)
class Options:
    minutes: float
    seed: int
    only: tuple[str, ...]
    surfaces: tuple[str, ...]
    rate: float
    settle_seconds: float
    report: Path | None
    folder: Path | None
    keep: bool
    plan: bool
    sweep: bool

    @property
    def seconds(self) -> float:
        return self.minutes * 60


def parse(arguments: Sequence[str]) -> Options:
    """Parse the command line. Exits with a message if it is invalid."""
    parser = argparse.ArgumentParser(
        prog="make chaos ARGS=...",
        description="Runs a real deployment under a mixed load, injects faults from a seeded "
        "plan, then checks that nothing was lost, done twice or left behind.",
        epilog=f"Kinds of faults: {', '.join(KINDS)}; groups of them: {', '.join(GROUPS)}.",
    )
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="how long to inject faults (default 2)"
    )
    parser.add_argument(
        "--seed", type=int, help="repeat the plan of an earlier run (default: a new seed, printed)"
    )
    parser.add_argument(
        "--only",
        metavar="NAME,...",
        help="only these kinds of faults, at the same times as with the others; "
        f"{SWEEP}: every named crash point instead of a plan; none: no faults at all",
    )
    parser.add_argument(
        "--products",
        "--surfaces",
        dest="surfaces",
        metavar="NAME,...",
        help=f"load only these products: {', '.join(SURFACES)}",
    )
    parser.add_argument(
        "--rate", type=float, default=20.0, help="approximate calls per second (default 20)"
    )
    parser.add_argument(
        "--settle",
        type=float,
        default=180.0,
        metavar="SECONDS",
        help="time for all jobs to finish after the last fault (default 180)",
    )
    parser.add_argument("--report", type=Path, metavar="DIR", help=f"default: {REPORTS}/DATE-SEED")
    parser.add_argument(
        "--folder",
        type=Path,
        help="folder of the deployment's data (default: a temporary folder, removed "
        "after a run without findings)",
    )
    parser.add_argument("--keep", action="store_true", help="keep that folder")
    parser.add_argument("--plan", action="store_true", help="print the plan and exit")
    chosen = parser.parse_args(arguments)
    if chosen.minutes <= 0:
        parser.error("--minutes must be above 0")
    return Options(
        minutes=chosen.minutes,
        seed=random.randrange(_SEED_MAX) if chosen.seed is None else chosen.seed,
        only=_kinds(parser, chosen.only),
        surfaces=_chosen(parser, "--products", chosen.surfaces, SURFACES),
        rate=chosen.rate,
        settle_seconds=chosen.settle,
        report=chosen.report,
        folder=chosen.folder,
        keep=chosen.keep,
        plan=chosen.plan,
        sweep=chosen.only == SWEEP,
    )


def _kinds(parser: argparse.ArgumentParser, given: str | None) -> tuple[str, ...]:
    if given in (SWEEP, "none"):
        return ()
    names = _chosen(parser, "--only", given, (*KINDS, *GROUPS), default=KINDS)
    wanted = {kind for name in names for kind in GROUPS.get(name, (name,))}
    return tuple(kind for kind in KINDS if kind in wanted)


def _chosen(
    parser: argparse.ArgumentParser,
    option: str,
    given: str | None,
    known: Sequence[str],
    default: Sequence[str] | None = None,
) -> tuple[str, ...]:
    if given is None:
        return tuple(known if default is None else default)
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        parser.error(
            f"{option}: {', '.join(unknown) or 'nothing'} is not one of {', '.join(known)}"
        )
    return names
