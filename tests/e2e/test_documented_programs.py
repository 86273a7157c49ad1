"""The programs in the how-to guides run, and print what their page shows.

A page's Python blocks that begin with a file's name (``# shop.py``) are written to a folder. Those
that declare a service are served by a worker, with the command that the page shows, if it does; the
others are run in the order of the page. What a
program prints is the next ``text`` block of the page, to the letter; in a ``text sample`` block
lines may be missing, but neither be others nor another last one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.programs import environment, output_of, worker
from tests.markdown import Block, Page, pages

SERVICE = re.compile(r"^(?P<variable>\w+) = Service\(", re.MULTILINE)


@dataclass(frozen=True)
class Program:
    file_name: str
    printed: Block


def services(page: Page) -> list[str]:
    return [
        f"{block.file_name.removesuffix('.py')}:{found['variable']}"
        for block in page.blocks("python")
        if block.file_name
        for found in SERVICE.finditer(block.text)
    ]


def programs(page: Page) -> list[Program]:
    found: list[Program] = []
    waiting: str | None = None
    for block in page.blocks():
        if block.info == "python" and is_program(block):
            assert waiting is None, f"{page.name} does not say what {waiting} prints"
            waiting = block.file_name
        elif block.info.startswith("text") and waiting:
            found.append(Program(waiting, block))
            waiting = None
    assert waiting is None, f"{page.name} does not say what {waiting} prints"
    return found


def is_program(block: Block) -> bool:
    """Whether it is neither a service nor a module of a package."""
    name = block.file_name or "/"
    return "/" not in name and not SERVICE.search(block.text)


def served(page: Page) -> list[str]:
    """The services that ``coatcheck worker`` is told of."""
    shown = [block.text.split() for block in page.blocks("sh")]
    workers = [words[2:] for words in shown if words[:2] == ["coatcheck", "worker"]]
    return workers[0] if workers else services(page)


PAGES = [page for page in pages("docs/how-to") if programs(page)]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_programs_print_what_their_page_shows(page: Page, dsn: str, tmp_path: Path) -> None:
    for block in page.blocks("python"):
        if block.file_name:
            (tmp_path / block.file_name).write_text(block.text)
    env = environment(dsn, tmp_path)
    with worker(served(page), cwd=tmp_path, env=env, log=tmp_path / "worker.log"):
        for program in programs(page):
            printed = output_of(tmp_path / program.file_name, cwd=tmp_path, env=env)
            if program.printed.info == "text sample":
                assert_like(printed.splitlines(), program.printed.text.splitlines())
            else:
                assert printed == program.printed.text


def assert_like(printed: list[str], sample: list[str]) -> None:
    assert printed, "nothing was printed"
    assert printed[-1] == sample[-1]
    ahead = iter(sample)
    assert all(line in ahead for line in printed), f"{printed} is not within {sample}"


def test_the_guides_with_code_are_run() -> None:
    assert {page.path.stem for page in PAGES} == {
        "delay-and-deadlines",
        "isolate-a-handler",
        "limit-concurrency",
        "retry-and-fail",
        "version-a-service",
    }
