"""Where the ``coatcheck`` command begins: it can be ended before what it needs has been loaded."""

from __future__ import annotations

import os
import signal

EXIT_INTERRUPTED = 130
"""Ctrl-C, as a shell says it."""


def main() -> None:
    """The entry point of the ``coatcheck`` script."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # who started it may have had it ignored
        # Half-loaded modules would turn a KeyboardInterrupt into a traceback, or into an error of
        # their own; nothing was begun that would have to be ended.
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    from coatcheck.cli.app import main as run

    signal.signal(signal.SIGINT, before)
    try:
        run()
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
