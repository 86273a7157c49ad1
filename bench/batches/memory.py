"""The peak memory of processes, from the kernel's high-water mark instead of samples."""

from pathlib import Path

from bench.processes import Child

_KIB = 1024


class Memory:
    """Megabytes by process, the greatest that was found."""

    def __init__(self) -> None:
        self.peaks: dict[str, float] = {}

    def note(self, name: str, child: Child) -> None:
        """Ask a running process. To be called right before it is stopped: then it was all."""
        child.raise_if_ended()
        peak = _high_water_mark(child.process.pid) / 1e6
        self.peaks[name] = max(peak, self.peaks.get(name, 0.0))


def _high_water_mark(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * _KIB
    raise RuntimeError("the kernel does not tell how much memory a process had at most")
