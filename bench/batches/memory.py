"""The peak memory of processes, from the kernel's high-water mark instead of samples."""

from pathlib import Path

from bench.processes import Child

_KIB = 1024


class Memory:
    """The maximum megabytes by process."""

    def __init__(self) -> None:
        self.peaks: dict[str, float] = {}

    def note(self, name: str, child: Child) -> None:
        """Read the peak of a running process. Call it right before the process stops."""
        child.raise_if_ended()
        peak = _high_water_mark(child.process.pid) / 1e6
        self.peaks[name] = max(peak, self.peaks.get(name, 0.0))


def _high_water_mark(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * _KIB
    raise RuntimeError("the kernel does not report the peak memory of a process")
