"""The core's SQL knows no product: neither their tables, nor their endpoints, nor their words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import coatcheck
from coatcheck.db.migrate import installed_packages

ROOT: Final = Path(coatcheck.__file__).parent
PRODUCTS: Final = frozenset(
    {
        *("batch_exports", "batch_ingest", "batch_positions", "batch_removal", "batch_tasks"),
        *("batches", "llm", "speech"),
    }
)
"""Folders of statements. The console's is not here: it is a product that must know no other."""
PRODUCTS: Final = re.compile(
    r"batch|llm|speech|voice|graph|gateway|scrape|ollama|openai", re.IGNORECASE
)
CTE: Final = re.compile(r"(?:WITH(?: RECURSIVE)?|[,)])\s+(\w+) AS (?:MATERIALIZED )?\(")
TABLE: Final = re.compile(r"CREATE (?:UNLOGGED )?TABLE (\w+)")
FILES: Final = sorted(ROOT.rglob("*.sql"))


def is_of_the_core(file: Path) -> bool:
    return file.relative_to(ROOT).parts[0] == "core"


def leaks(text: str) -> list[str]:
    return [line for line in text.splitlines() if PRODUCTS.search(line)]


def tables_of(file: Path) -> set[str]:
    return set(TABLE.findall(file.read_text()))


@pytest.mark.parametrize("leak", ["-- of a batch", "JOIN llm_targets AS t", "'Gateway.post__a'"])
def test_a_leak_would_be_found(leak: str) -> None:
    assert leaks(f"SELECT 1\n{leak}\n") == [leak]


def test_the_core_s_sql_names_no_product() -> None:
    core = [file for file in FILES if is_of_the_core(file)]
    assert len(core) > 200, "the folders are found"
    found = {str(file.relative_to(ROOT)): leaks(file.read_text()) for file in core}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_the_core_s_sql_reads_no_table_of_a_product() -> None:
    assert {package.name for package in installed_packages()} >= {"batches", "llm", "speech"}
    theirs = {
        table
        for file in ROOT.rglob("schema/*.sql")
        if not is_of_the_core(file)
        for table in tables_of(file)
    }
    assert {"batches", "voices", "llm_assignments", "generations"} <= theirs
    found = {
        str(file.relative_to(ROOT)): names
        for file in FILES
        if is_of_the_core(file) and (names := theirs & set(re.findall(r"\w+", file.read_text())))
    }
    assert found == {}


def test_no_fragment_of_a_statement_hides_a_table_that_another_fragment_reads() -> None:
    """A CTE that is named like a table stands for it in everything that the statement includes."""
    tables = {table for file in ROOT.rglob("schema/*.sql") for table in tables_of(file)}
    including = [
        file for file in FILES if re.search(r"/\* include (\S+:)?webhooks/tell", file.read_text())
    ]
    assert len(including) > 10
    found = {
        str(file.relative_to(ROOT)): tables & set(CTE.findall(file.read_text()))
        for file in including
    }
    assert {name: names for name, names in found.items() if names} == {}
