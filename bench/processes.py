"""Child processes of the benchmark: started here, and ended here in every case."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

STOP_GRACE_SECONDS = 10.0
LOG_TAIL_LINES = 20
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Child:
    """A started program with its own process group and its own log file."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def raise_if_ended(self) -> None:
        if self.process.returncode is not None:
            raise ChildEndedError(self)

    def cpu_seconds(self) -> float:
        """User and system time of the running process, as the kernel has it."""
        self.raise_if_ended()
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND

    async def stop(self) -> None:
        """Asks the whole group to end; kills it after a grace time."""
        self._signal_group(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), STOP_GRACE_SECONDS)
        except TimeoutError:
            self._signal_group(signal.SIGKILL)
            await self.process.wait()
        finally:
            # Grandchildren that outlived their leader (a pool's forks) are in the same group.
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class ChildEndedError(RuntimeError):
    """A program of a contender ended while the bench still needed it."""

    def __init__(self, child: Child) -> None:
        super().__init__(
            f"{child.name} ended with status {child.process.returncode}; its log ends with:\n"
            f"{child.log_tail()}"
        )


class Processes:
    """Starts children and remembers them, so that none is left behind."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: list[Child] = []
        self._started = 0

    async def start(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        piped: bool = False,
    ) -> Child:
        """Starts `command`. With `piped` its stdin and stdout are pipes, else stdout is logged."""
        self._started += 1
        log = self._logs / f"{self._started:04d}-{name}.log"
        with log.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **environment},
                stdin=asyncio.subprocess.PIPE if piped else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if piped else sink,
                stderr=sink,
                start_new_session=True,
                # A whole line of figures (thousands of numbers) must fit the reader's buffer.
                limit=16 * 1024 * 1024,
            )
        child = Child(name, process, log)
        self._children.append(child)
        return child

    async def stop(self, child: Child) -> None:
        await child.stop()
        self._children.remove(child)

    async def stop_all(self) -> None:
        children, self._children = self._children, []
        await asyncio.gather(*(child.stop() for child in children))
