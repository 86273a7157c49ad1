"""The machine and the versions of a run."""

import importlib.metadata
import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import psutil

from bench.contenders.contract import Contender

NODE_MODULES = Path(__file__).parent / "node_modules"


def machine() -> dict[str, object]:
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
    }


def processor() -> str:
    """The processor's name on Linux, else the architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def version(contender: Contender) -> str:
    """The installed version, from the Python distribution or the npm package."""
    package = NODE_MODULES / contender.distribution / "package.json"
    if package.exists():
        return str(json.loads(package.read_text())["version"])
    return importlib.metadata.version(contender.distribution)
