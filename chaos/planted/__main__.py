"""Plants each bug in a copy of the tree and runs the lane that must find it.

    python -m chaos.planted                     every bug, with the cheapest lane that must catch it
    python -m chaos.planted --lane chaos        the bugs that a chaos run must catch
    python -m chaos.planted --only finish cancel

First the lanes run on a copy without a bug, where they must pass: a test that fails anyway catches
nothing. Exits with 1 if a bug was not caught.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

from chaos.planted import lanes, table
from chaos.planted.bugs import Bug, Lane, LaneName, planted
from chaos.planted.table import Row
from chaos.planted.trees import REPOSITORY, DoesNotApply, Tree

_CONTROL_SECONDS_MAX: Final = 1_800.0
"""For the tests of all lanes, one after the other."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    chosen = [
        (bug, lane) for bug in planted(options.only) if (lane := bug.lane(options.lane)) is not None
    ]
    if not chosen:
        print("there is no such bug", file=sys.stderr)
        return 2
    report: Path = options.report
    with tempfile.TemporaryDirectory(prefix="coatcheck-planted-") as folder:
        Path(folder).chmod(0o711)  # PostgreSQL's account needs access to it
        sound = Tree.of_the_repository(Path(folder) / "sound")
        sound.check()
        if not options.without_control and not _is_sound(
            sound, [lane for _, lane in chosen], report
        ):
            return 1
        rows = []
        for number, (bug, lane) in enumerate(chosen, 1):
            print(f"[{number}/{len(chosen)}] {bug.name}: {lane}", flush=True)
            rows.append(Row(bug, lane, _run(bug, lane, sound, Path(folder) / bug.name, report)))
            print(rows[-1].line(), flush=True)
            table.write(rows, report)  # an interrupted run still has the first half
    print(f"\n{table.write(rows, report)}\nwritten to {report}")
    return 0 if all(row.caught for row in rows) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m chaos.planted", description="Checks that planted bugs are found."
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="bugs whose names contain one of these",
    )
    parser.add_argument(
        "--lane", choices=get_args(LaneName), help="only the bugs that this lane must catch"
    )
    parser.add_argument(
        "--report",
        type=Path,
        metavar="DIR",
        default=REPOSITORY / "build" / "planted" / time.strftime("%Y%m%d-%H%M%S"),
        help="folder of the table and of each run's output",
    )
    parser.add_argument(
        "--without-control",
        action="store_true",
        help="do not first check that the lanes pass without a bug",
    )
    return parser.parse_args(arguments)


def _is_sound(tree: Tree, wanted: Sequence[Lane], report: Path) -> bool:
    """Whether every lane passes on the copy without a bug; tests run together, once each."""
    tests = dict.fromkeys(name for lane in wanted if lane.name == "test" for name in lane.arguments)
    control = [Lane("test", tuple(tests))] if tests else []
    control += dict.fromkeys(lane for lane in wanted if lane.name == "chaos")
    for number, lane in enumerate(control):
        print(f"[control] {len(lane.arguments)} {lane.name} arguments, without a bug", flush=True)
        limit = _CONTROL_SECONDS_MAX if lane.name == "test" else None
        run = lanes.run(lane, tree, report / f"control-{number}", limit)
        if run.caught_by or run.trouble:
            failed = ", ".join(run.caught_by) or run.trouble
            print(f"  the lane fails without any bug: {failed}", file=sys.stderr)
            return False
        print(f"{'passed':>10}  {run.passed} in {run.seconds:.0f} s", flush=True)
    return True


def _run(bug: Bug, lane: Lane, sound: Tree, folder: Path, report: Path) -> lanes.Run:
    tree = sound.copy(folder)
    try:
        tree.plant(bug.patch)
        tree.check()
        return lanes.run(lane, tree, report / bug.name)
    except DoesNotApply as error:
        return lanes.Run(0.0, trouble=f"the patch does not apply: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
