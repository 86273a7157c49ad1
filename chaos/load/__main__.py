"""Runs the load alone, on an existing deployment.

python -m chaos.load --environment --world-port 9100    # prints the settings of its processes
python -m chaos.load --url http://127.0.0.1:8080 --key cck_... --world-port 9100 --seconds 20

The workers must serve ``chaos.handlers:chaos``. The llm and speech products need settings with
their models and remotes, so without ``--world-port`` the load covers only the other products.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from collections import Counter
from pathlib import Path

import httpx2

from chaos.history import History, read
from chaos.load import SURFACES, Load
from chaos.world import World
from coatcheck.tls import trusted_authorities


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m chaos.load", description="Runs the load alone."
    )
    parser.add_argument("--url", action="append", help="URL of a server; repeatable")
    parser.add_argument("--key", action="append", help="admin key of an organisation; repeatable")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--settle-seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=20.0, help="approximate calls per second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--products", "--surfaces", dest="surfaces", help=f"only these: {','.join(SURFACES)}"
    )
    parser.add_argument("--world-port", type=int, default=0, help="first of two ports")
    parser.add_argument(
        "--folder", type=Path, default=Path("build/load"), help="folder of the history"
    )
    parser.add_argument(
        "--environment", action="store_true", help="print the settings that the deployment needs"
    )
    return parser.parse_args()


async def main(given: argparse.Namespace) -> int:
    history = History((given.folder / "history.ndjson").absolute())
    async with World(history, given.seed, port=given.world_port) as world:
        if given.environment:
            for name, value in world.environment.items():
                print(f"export {name}={shlex.quote(value)}")
            return 0
        keys = {await _organisation(given.url[0], key): key for key in given.key}
        served = SURFACES if given.world_port else ("gateway", "batches", "graphs")
        surfaces = given.surfaces.split(",") if given.surfaces else served
        load = Load(given.url, keys, world, history, given.seed, surfaces, given.rate)
        until = asyncio.Event()
        asyncio.get_running_loop().call_later(given.seconds, until.set)
        await load.run(until)
        await load.settle(given.settle_seconds)
    history.close()
    return _told(history.path)


async def _organisation(url: str, key: str) -> str:
    authorities = trusted_authorities(trust_env=False)
    async with httpx2.AsyncClient(trust_env=False, verify=authorities) as client:
        answer = await client.get(f"{url}/api/v1/me", headers={"Authorization": f"Bearer {key}"})
        answer.raise_for_status()
        org: str = answer.json()["org_id"]
        return org


def _told(path: Path) -> int:
    """Print a summary. Returns 1 if there was a violation."""
    rows = read(path)
    begun = max(index for index, row in enumerate(rows) if row["kind"] == "began")
    rows = rows[begun:]
    print("lines:", dict(Counter(row["kind"] for row in rows)))
    ends = Counter(
        (row["surface"], row["state"]) for row in rows if row["kind"] == "seen" and row["terminal"]
    )
    for (surface, state), number in sorted(ends.items()):
        print(f"{surface:>10} {state:<14} {number}")
    violations = [row for row in rows if row["kind"] == "violation"]
    for row in violations:
        print("VIOLATION", row)
    settled = [row for row in rows if row["kind"] == "settled"]
    print("settled:", settled)
    return 1 if violations or not settled or settled[-1]["unsettled"] else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(arguments())))
