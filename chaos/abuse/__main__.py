"""Runs attacks on a deployment.

    python -m chaos.abuse [--only pipelining,streams] [--source ../old] [--report FILE]

Prints a Markdown table. Exits with 1 if an attack exceeded its limits.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chaos.abuse.attacks import ATTACKS
from chaos.abuse.run import Measured, attacked
from chaos.member import ROOT

HEAD = (
    "row",
    "attack",
    "MiB before / peak / after",
    "bystander: health p50 / p99 / worst, ms",
    "read",
    "call",
    "failed",
    "recovered after",
    "counted",
    "",
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.abuse")
    parser.add_argument("--only", default=",".join(ATTACKS), help="names, separated by commas")
    parser.add_argument("--source", type=Path, default=ROOT, help="the checkout to attack")
    parser.add_argument("--report", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    chosen = [name.strip() for name in options.only.split(",")]
    if unknown := set(chosen) - set(ATTACKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(ATTACKS)}")
    measured = asyncio.run(_all(chosen, options.source))
    table = _table(measured)
    print(f"\n{table}")
    if options.report is not None:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(table)
    return 1 if any(each.complaints for each in measured) else 0


async def _all(chosen: Sequence[str], source: Path) -> list[Measured]:
    measured = []
    with tempfile.TemporaryDirectory(prefix="coatcheck-abuse-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # PostgreSQL's account needs access to its own folder
        for attack in chosen:
            print(f"{attack}: {ATTACKS[attack].title}", flush=True)
            each = await attacked(ATTACKS[attack], folder / attack, source=source)
            for complaint in each.complaints:
                print(f"  {complaint}", flush=True)
            measured.append(each)
    return measured


def _table(measured: Sequence[Measured]) -> str:
    rows = [HEAD, ("---",) * len(HEAD), *map(_row, measured)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(each: Measured) -> tuple[str, ...]:
    during = each.during
    failed = sum(kind["failed"] for kind in during.values())
    counted = (f"{name} {value}" for name, value in each.figures.items())
    recovery = each.recovery_seconds
    return (
        str(each.attack.row),
        each.attack.title,
        " / ".join(map(str, each.memory)),
        *(_latency(during[kind], each.before[kind]) for kind in ("health", "read", "call")),
        str(failed),
        "never" if recovery is None else f"{recovery:.1f} s",
        ", ".join(counted),
        "; ".join(each.complaints) or "held",
    )


def _latency(during: dict[str, Any], before: dict[str, Any]) -> str:
    return f"{during['p50']} / {during['p99']} / {during['worst']} (before: {before['p99']})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
