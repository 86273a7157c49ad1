"""Measures recovery times.

    python -m chaos.recovery [--rounds 10] [--only up,worker,unseen,postgres,stall,...]

Prints a Markdown table. Exits with 1 if a target was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from chaos.recovery.measures import MEASUREMENTS, Measure

HEAD = ["", "rounds", "min", "median", "max", "target", ""]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.recovery")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each measurement (10)")
    parser.add_argument("--only", default=",".join(MEASUREMENTS), help="names, separated by commas")
    parser.add_argument("--report", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    chosen = [name.strip() for name in options.only.split(",")]
    if unknown := set(chosen) - set(MEASUREMENTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    measures = asyncio.run(_measured(chosen, options.rounds))
    table = _table(measures)
    print(f"\n{table}")
    if options.report is not None:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(table)
    return 0 if all(measure.met for measure in measures) else 1


async def _measured(chosen: Sequence[str], rounds: int) -> list[Measure]:
    measures: list[Measure] = []
    with tempfile.TemporaryDirectory(prefix="coatcheck-recovery-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # PostgreSQL's account needs access to its own folder
        for measurement in chosen:
            measures += await MEASUREMENTS[measurement](folder / measurement, rounds, _say)
    return measures


def _say(line: str) -> None:
    print(line, flush=True)


def _table(measures: Sequence[Measure]) -> str:
    rows = [HEAD, ["---", *["---:"] * 5, "---"], *(measure.row() for measure in measures)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
