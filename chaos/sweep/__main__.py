"""``python -m chaos.sweep``: writes sweep.md and sweep.json. Exits with 0 if every point passed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from chaos.progress import say
from chaos.sweep.passes import PASSES, as_json, run
from chaos.sweep.table import is_whole, markdown

REPORTS = Path("build", "chaos")


def main() -> int:
    parser = argparse.ArgumentParser(prog='make chaos ARGS="--only sweep"', description=__doc__)
    parser.add_argument("--report", type=Path, help=f"default: {REPORTS}/DATE-sweep")
    parser.add_argument("--victims", help=f"only these: {', '.join(PASSES)} (default: all)")
    parser.add_argument(
        "--tests", default="", help="only tests with one of these words, separated by commas"
    )
    given = parser.parse_args()
    names = given.victims.split(",") if given.victims else list(PASSES)
    if unknown := [name for name in names if name not in PASSES]:
        parser.error(f"--victims: {', '.join(unknown)} is not of {', '.join(PASSES)}")
    folder = given.report or REPORTS / f"{time.strftime('%Y%m%d-%H%M%S')}-sweep"
    folder.mkdir(parents=True, exist_ok=True)
    only = [word for word in given.tests.split(",") if word]

    results = {}
    for name in names:
        say(f"sweep: {PASSES[name].title}")
        results[name] = run(PASSES[name], folder.resolve(), only)
        struck = results[name]
        failed = [each for each in struck if each.outcome == "failed"]
        say(f"sweep: {PASSES[name].title}: {len(struck)} strikes, {len(failed)} failed")
    (folder / "sweep.json").write_text(
        json.dumps({name: [*map(as_json, struck)] for name, struck in results.items()}, indent=1)
    )
    (folder / "sweep.md").write_text(markdown(results))
    say(f"sweep: {folder / 'sweep.md'}")
    return 0 if is_whole(results) or (only and not _failed(results)) else 1


def _failed(results: dict[str, list]) -> bool:  # type: ignore[type-arg]
    return any(each.outcome == "failed" for struck in results.values() for each in struck)


if __name__ == "__main__":
    sys.exit(main())
