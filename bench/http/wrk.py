"""wrk, the load generator: 64 kept-alive connections from one thread."""

import asyncio
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

EXECUTABLE = "wrk"
CONNECTIONS = 64
GRACE_SECONDS = 30.0

_SCRIPT = """
wrk.method = {method}
{headers}
{body}
function done(summary, latency, requests)
  io.write(string.format(
    '{{"requests": %d, "microseconds": %d, "refused": %d, "broken": %d}}\\n',
    summary.requests, summary.duration, summary.errors.status,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout))
end
"""


def is_installed() -> bool:
    return shutil.which(EXECUTABLE) is not None


@dataclass(frozen=True)
class Load:
    """One request, sent repeatedly."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] | None = None
    body: str | None = None


@dataclass(frozen=True)
class Served:
    requests: int
    per_second: float


class RefusedError(RuntimeError):
    """A server answered with an error, or closed connections."""


async def run(load: Load, seconds: float, folder: Path) -> Served:
    """Send ``load`` for this many seconds. Raises RefusedError if any answer is an error."""
    script = folder / "load.lua"
    script.write_text(
        _SCRIPT.format(
            method=json.dumps(load.method),
            headers="\n".join(
                f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}"
                for name, value in (load.headers or {}).items()
            ),
            body="" if load.body is None else f"wrk.body = {json.dumps(load.body)}",
        )
    )
    process = await asyncio.create_subprocess_exec(
        *(EXECUTABLE, "-t1", f"-c{CONNECTIONS}", f"-d{seconds:.0f}s", "-s", str(script), load.url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(seconds + GRACE_SECONDS):
            out, err = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        raise RefusedError(f"wrk ended with {process.returncode}: {err.decode().strip()}")
    found = json.loads(out.decode().strip().splitlines()[-1])
    if found["refused"] or found["broken"]:
        raise RefusedError(f"of {found['requests']} requests to {load.url}: {found}")
    return Served(found["requests"], found["requests"] / (found["microseconds"] / 1e6))
