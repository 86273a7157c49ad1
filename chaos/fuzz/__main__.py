"""Runs the fuzz tests: ``python -m chaos.fuzz [--times 3] [--seed N] [--only archives,urls]``.

The examples depend on the seed alone, so ``--seed`` repeats a run.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chaos.fuzz.parts import PARTS, Part
from tests.budget import SEED_VARIABLE, TIMES_VARIABLE
from tests.properties.machine import EXAMPLES_VARIABLE

ROOT: Final = Path(__file__).resolve().parents[2]
TIMES: Final = 3
SEEDS: Final = 1_000_000
HISTORIES: Final = 60
"""The examples of each state machine, per factor."""


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    seed = random.randrange(SEEDS) if options.seed is None else options.seed
    parts = [part for part in PARTS if not options.only or part.name in options.only]
    print(f"seed {seed}, {options.times} times as much as with the tests", flush=True)
    outcomes = [_run(part, seed, options.times) for part in parts]
    print(f"\n{'part':18} {'seconds':>8}  outcome")
    for part, (status, seconds) in zip(parts, outcomes, strict=True):
        print(f"{part.name:18} {seconds:8.0f}  {'passed' if status == 0 else f'FAILED ({status})'}")
    failed = [part.name for part, (status, _) in zip(parts, outcomes, strict=True) if status != 0]
    if failed:
        print(f'again: ARGS="--seed {seed} --times {options.times} --only {",".join(failed)}"')
    return 1 if failed else 0


def _run(part: Part, seed: int, times: int) -> tuple[int, float]:
    """Its exit status and its duration."""
    print(f"\n== {part.name}", flush=True)
    began = time.monotonic()
    plugins = ["chaos.fuzz.enlarging", *part.plugins]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rP", f"--hypothesis-seed={seed}"]
        + [word for plugin in plugins for word in ("-p", plugin)]
        + ["-p", "no:cacheprovider", *part.tests],
        check=False,
        cwd=ROOT,
        env=os.environ
        | {
            TIMES_VARIABLE: str(times),
            SEED_VARIABLE: str(seed),
            EXAMPLES_VARIABLE: str(HISTORIES * times),
        },
    )
    return done.returncode, time.monotonic() - began


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos.fuzz", description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES, help=f"factor of examples ({TIMES})")
    parser.add_argument("--seed", type=int, help="repeat an earlier run")
    names = ", ".join(part.name for part in PARTS)
    parser.add_argument("--only", type=_names, default=[], help=f"only these parts: {names}")
    return parser.parse_args(arguments)


def _names(text: str) -> list[str]:
    asked = [name.strip() for name in text.split(",") if name.strip()]
    unknown = set(asked) - {part.name for part in PARTS}
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
    return asked


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
