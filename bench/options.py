"""The command line options of the benchmark."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.catalogue import Scenario
from bench.contenders import CONTENDERS
from bench.contenders.contract import Contender
from bench.snapshot.amounts import FULL, QUICK

ROUNDS = 3
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Options:
    rounds: int
    contenders: tuple[Contender, ...]
    scenarios: tuple[Scenario, ...]
    quick: bool
    output: Path | None
    folder: Path | None
    snapshot_minutes: float | None
    snapshot_rows: int | None


def parse(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=...",
        description="Measures Coatcheck and comparable systems on the same work in one run.",
    )
    names = [contender.name for contender in CONTENDERS]
    parser.add_argument("--rounds", type=int, help=f"rounds (default {ROUNDS}; 1 with --quick)")
    parser.add_argument(
        "--only", metavar="NAME,...", help=f"only these contenders: {', '.join(names)}"
    )
    parser.add_argument(
        "--scenarios", metavar="NAME,...", help=f"only these scenarios: {', '.join(Scenario)}"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, for a first impression")
    parser.add_argument(
        "--output",
        type=Path,
        help="folder of the report (default: a whole run writes bench/results, a quick or "
        "partial run only prints)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="folder of the servers' data (default: a temporary folder)",
    )
    parser.add_argument(
        "--snapshot-minutes",
        type=float,
        help=f"minutes that `snapshot` takes (default {FULL.minutes:.0f}; "
        f"{QUICK.minutes:.0f} with --quick)",
    )
    parser.add_argument(
        "--snapshot-rows",
        type=int,
        help=f"finished jobs before `snapshot` (default {FULL.history:,}; "
        f"{QUICK.history:,} with --quick)",
    )
    chosen = parser.parse_args(arguments)
    rounds = chosen.rounds if chosen.rounds is not None else (1 if chosen.quick else ROUNDS)
    if rounds < 1:
        parser.error("--rounds must be at least 1")
    scenarios = tuple(
        Scenario(name) for name in _chosen(parser, "--scenarios", chosen.scenarios, list(Scenario))
    )
    # These alone are whole: they have reports of their own.
    alone = (
        *(Scenario.BATCHES, Scenario.LLM, Scenario.REMOTE, Scenario.DASHBOARD),
        *(Scenario.FOOTPRINT, Scenario.ABLATION, Scenario.SNAPSHOT),
    )
    is_whole = set(scenarios) in (set(Scenario), *({each} for each in alone))
    partial = chosen.quick or chosen.only is not None or not is_whole
    return Options(
        rounds=rounds,
        contenders=tuple(
            contender
            for contender in CONTENDERS
            if contender.name in _chosen(parser, "--only", chosen.only, names)
        ),
        scenarios=scenarios,
        quick=chosen.quick,
        output=chosen.output or (None if partial else RESULTS),
        folder=chosen.folder,
        snapshot_minutes=chosen.snapshot_minutes,
        snapshot_rows=chosen.snapshot_rows,
    )


def _chosen(
    parser: argparse.ArgumentParser, option: str, text: str | None, known: Sequence[str]
) -> list[str]:
    if text is None:
        return list(known)
    names = text.split(",")
    for name in names:
        if name not in known:
            parser.error(f"{option}: {name!r} is not one of {', '.join(known)}")
    return names
