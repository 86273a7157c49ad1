"""Names are looked up by real packets, on the loop that the product runs on and on asyncio's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from coatcheck.egress.name_servers import ask_name_servers
from coatcheck.egress.resolver import (
    LOOK_UPS_PER_ORG_MAX,
    NameNotFound,
    shared_resolver,
)
from tests.egress.name_server import Answer, NameServer, name_server
from tests.waiting import eventually_async

Run = Callable[[Coroutine[Any, Any, None]], None]


def answer(name: str, turn: int) -> Answer:
    if name.endswith(".slow.example.com"):
        return None
    return {
        "both.example.com": ["192.0.2.1", "2001:db8::1"],
        "four.example.com": ["192.0.2.1", "192.0.2.2"],
        "six.example.com": ["2001:db8::1"],
        "service.inside.example.com": ["192.0.2.3"],
    }.get(name, [])


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main)

    return run


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def asked(server: NameServer, host: str) -> set[str]:
    return {str(each) for each in await ask_name_servers(host, servers=[server.address])}


def test_a_name_has_the_addresses_of_both_kinds(run: Run) -> None:
    async def main() -> None:
        async with name_server(answer) as server:
            assert await asked(server, "both.example.com") == {"192.0.2.1", "2001:db8::1"}
            assert await asked(server, "four.example.com") == {"192.0.2.1", "192.0.2.2"}
            assert await asked(server, "six.example.com") == {"2001:db8::1"}

    run(main())


def test_a_name_that_is_not_there_is_not_found(run: Run) -> None:
    async def main() -> None:
        async with name_server(answer) as server:
            with pytest.raises(NameNotFound):
                await asked(server, "nowhere.example.com")

    run(main())


def test_the_search_list_is_honoured(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDOMAIN", "inside.example.com")

    async def main() -> None:
        async with name_server(answer) as server:
            assert await asked(server, "service") == {"192.0.2.3"}

    run(main())


def test_the_hosts_file_is_read(run: Run) -> None:
    async def main() -> None:
        async with name_server(answer) as server:
            assert "127.0.0.1" in await asked(server, "localhost")
            assert not server.asked

    run(main())


def test_slow_names_of_one_organisation_keep_no_other_from_its_own(run: Run) -> None:
    async def main() -> None:
        async with name_server(answer) as server:
            resolve = shared_resolver([server.address])
            flood = [
                asyncio.create_task(resolve(f"{index}.slow.example.com", "flooding", None))
                for index in range(5 * LOOK_UPS_PER_ORG_MAX)
            ]

            async def all_asked() -> bool:
                return len(server.asked) >= LOOK_UPS_PER_ORG_MAX

            await eventually_async(all_asked, "the organisation is at its limit")
            for _ in range(20):
                assert len(await resolve("four.example.com", "bystander", None)) == 2
            slow = [name for name in server.asked if "slow" in name]
            assert len(slow) == LOOK_UPS_PER_ORG_MAX
            assert not any(task.done() for task in flood)
            for task in flood:
                task.cancel()
            await asyncio.gather(*flood, return_exceptions=True)

    run(main())


def test_a_look_up_that_is_cancelled_leaves_no_socket(run: Run) -> None:
    async def main() -> None:
        async with name_server(answer) as server:
            before = open_files()
            tasks = [asyncio.create_task(asked(server, f"{n}.slow.example.com")) for n in range(20)]

            async def all_asked() -> bool:
                return len(server.asked) == len(tasks)

            await eventually_async(all_asked, "all were asked for")
            assert open_files() > before
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert open_files() == before

    run(main())


def test_a_process_ends_in_peace_while_a_name_is_looked_up() -> None:
    program = """
import asyncio, socket, uvloop
from coatcheck.egress.resolver import shared_resolver
silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
silent.bind(("127.0.0.1", 0))
async def main():
    resolve = shared_resolver([f"127.0.0.1:{silent.getsockname()[1]}"])
    task = asyncio.create_task(resolve("silent.example.com", "a", None))
    await asyncio.sleep(0)
    await asyncio.to_thread(silent.recv, 512)
    print("asked")
uvloop.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "asked\n", "")
