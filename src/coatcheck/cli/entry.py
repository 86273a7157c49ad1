"""The entry point of the ``coatcheck`` script. Ctrl-C works even while modules are loading."""

from __future__ import annotations

import gc
import os
import signal
import sys

EXIT_INTERRUPTED = 130
"""The exit code that shells use for Ctrl-C."""


def main() -> None:
    """The entry point of the ``coatcheck`` script."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # the parent process may have had it ignored
        # Half-loaded modules would turn a KeyboardInterrupt into a traceback or another error.
        # Nothing has started yet that would need cleaning up.
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    gc.disable()  # loading leaves hardly any garbage; the command turns it on again (app.py)
    from coatcheck.cli.app import main as run

    signal.signal(signal.SIGINT, before)
    try:
        run()
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except SystemExit as ended:
        if sys.argv[1:2] == ["doctor"] and isinstance(ended.code, int):
            # The blob store's threads abort a process that exits while they are still winding
            # down: it would end with 134 instead of the verdict. Nothing is left to close.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended.code)
        raise
