"""A command whose input and output are a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
from contextlib import suppress
from pathlib import Path

from tests.forked_process import ForkedProcess
from tests.waiting import LIMIT_SECONDS, eventually

SOURCE = Path(__file__).resolve().parents[2] / "src"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A context manager. What was written is in ``seen``, without colours and moves."""

    def __init__(self, arguments: list[str], cwd: Path, variables: dict[str, str]) -> None:
        self.raw = ""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        os.set_blocking(self._ours, False)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("COATCHECK_")}
        told = {"PYTHONPATH": str(SOURCE), "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            inherited.pop(name, None)
        self.process = ForkedProcess(
            "coatcheck.cli",
            arguments,
            cwd=cwd,
            env=inherited | {k: v for k, v in variables.items() if k != "COLUMNS"} | told,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    @property
    def seen(self) -> str:
        return _CONTROL.sub("", self.raw)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait_until_seen(self, text: str) -> None:
        eventually(lambda: text in self._read(), f"{text!r} on the terminal")

    def wait(self) -> int:
        """Until it has ended; everything it wrote is seen then."""
        eventually(lambda: self._read() is not None and self.process.poll() is not None, "its end")
        self._read()
        return self.process.wait(LIMIT_SECONDS)

    def _read(self) -> str:
        with suppress(OSError):  # nothing yet, or nothing more
            self.raw += os.read(self._ours, 65536).decode(errors="replace")
        return self.seen
