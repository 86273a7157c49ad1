"""No code of the documentation is there that no test has tried."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter

import pytest

from tests.documented_blocks import LEDGER, PARSED, RUN, SHOWN, Ran, documentation, to_be_run
from tests.markdown import REPOSITORY, Page

every_page = pytest.mark.parametrize("page", documentation(), ids=lambda page: page.name)


@every_page
def test_every_block_that_can_be_run_is_run_by_a_test(page: Page) -> None:
    listed: Counter[str] = Counter()
    for ran in LEDGER:
        if ran.page == page.name:
            listed[ran.kind] += ran.count
    assert to_be_run(page) == listed, "a test has to run it, and tests/documented_blocks.py say so"


@every_page
def test_every_block_is_of_a_kind_that_is_looked_after(page: Page) -> None:
    assert {block.info for block in page.blocks()} <= RUN | PARSED | SHOWN


@every_page
def test_every_document_on_a_page_can_be_read(page: Page) -> None:
    for block in page.blocks("json"):
        json.loads(block.text)
    for block in page.blocks("toml"):
        tomllib.loads(block.text)


@pytest.mark.parametrize("ran", LEDGER, ids=lambda ran: f"{ran.page}-{ran.kind}")
def test_the_test_that_is_said_to_run_it_reads_the_page(ran: Ran) -> None:
    source = (REPOSITORY / ran.by).read_text()
    name = ran.page.rpartition("/")[2].removesuffix(".md")
    assert re.search(rf'["/]{re.escape(name)}(\.md)?"', source)


def test_nothing_is_listed_that_is_no_page() -> None:
    assert {ran.page for ran in LEDGER} <= {page.name for page in documentation()}
