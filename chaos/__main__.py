"""``python -m chaos``: see options.py. Exits with 0 only if a valid run found nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import uvloop

from chaos.options import Options, parse
from chaos.progress import say
from chaos.schedule import plan

_INTERRUPTED = 130


def main() -> int:
    options = parse(sys.argv[1:])
    if options.plan:
        _show_plan(options)
        return 0
    if options.sweep:
        return _sweep(options)
    from chaos.run import run

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return 0 if runner.run(run(options)) else 1
    except KeyboardInterrupt:
        say("interrupted: all processes were stopped; no verdict")
        return _INTERRUPTED


def _sweep(options: Options) -> int:
    """Run in another process, because a sweep runs pytest."""
    where = [] if options.report is None else ["--report", str(options.report)]
    return subprocess.call([sys.executable, "-m", "chaos.sweep", *where])


def _show_plan(options: Options) -> None:
    print(f"seed {options.seed}, {options.minutes:g} min")
    for fault in plan(options.seed, options.seconds, only=options.only):
        print(fault)


if __name__ == "__main__":
    sys.exit(main())
