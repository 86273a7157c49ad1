"""What lies below the products knows none of them: not in code, SQL, comments or data.

Import contracts see imports. Knowledge hides in strings, endpoint names and tables as well.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import coatcheck
from coatcheck.db.migrate import installed_packages

ROOT: Final = Path(coatcheck.__file__).parent
BELOW: Final = (
    *("core", "db", "worker", "http", "maintenance", "hosting", "service", "domain"),
    *("archives", "blobs", "egress", "processes", "receipts", "remotes"),
)
"""Packages, and these modules:"""
MODULES: Final = ("product.py", "installed.py", "job.py")
PUBLIC: Final = {
    "domain/catalogue.py": {
        'GATEWAY_SERVICE: Final = "gateway"',
        'UPSTREAM_ENDPOINT = engine_name(GATEWAY_SERVICE, 1, endpoint_key("POST", "/http"))',
    },
    "domain/webhooks.py": {
        "    ``*`` means every end of jobs and of batches. ``job.*`` means every state of a job.",
    },
}
"""What is public and stays: the endpoint that usage names for upstreams, the events of webhooks."""
NAMES: Final = re.compile(
    r"(?<![a-z])(batches|llm|speech|graphs|gateway|scrape|ollama|openai|voices?)(?![a-z])",
    re.IGNORECASE,
)
IN_SQL: Final = re.compile(
    r"batch|llm|speech|voice|graph|gateway|scrape|ollama|openai", re.IGNORECASE
)
CTE: Final = re.compile(r"(?:WITH(?: RECURSIVE)?|[,)])\s+(\w+) AS (?:MATERIALIZED )?\(")
TABLE: Final = re.compile(r"CREATE (?:UNLOGGED )?TABLE (\w+)")


def files(suffix: str) -> list[Path]:
    found = [path for package in BELOW for path in (ROOT / package).rglob(f"*{suffix}")]
    return found + [ROOT / name for name in MODULES if name.endswith(suffix)]


def leaks(text: str, names: re.Pattern[str]) -> list[str]:
    return [line for line in text.splitlines() if names.search(line)]


def tables_of(file: Path) -> set[str]:
    return set(TABLE.findall(file.read_text()))


@pytest.mark.parametrize("leak", ["-- of a batch", "JOIN llm_targets AS t", "'Gateway.post__a'"])
def test_a_leak_into_sql_would_be_found(leak: str) -> None:
    assert leaks(f"SELECT 1\n{leak}\n", IN_SQL) == [leak]


@pytest.mark.parametrize(
    "leak", ['if name == "batches":', "# for the llm product", "LLM_ENDPOINTS = ()"]
)
def test_a_leak_into_code_would_be_found(leak: str) -> None:
    assert leaks(f"x = 1\n{leak}\n", NAMES) == [leak]


@pytest.mark.parametrize(
    ("suffix", "names", "at_least"), [(".py", NAMES, 150), (".sql", IN_SQL, 30)]
)
def test_what_is_below_the_products_names_none(
    suffix: str, names: re.Pattern[str], at_least: int
) -> None:
    seen = files(suffix)
    assert len(seen) > at_least, "the folders are found"
    found = {str(file.relative_to(ROOT)): set(leaks(file.read_text(), names)) for file in seen}
    public = PUBLIC if suffix == ".py" else {}
    assert {name: lines for name, lines in found.items() if lines} == public


def test_the_core_s_sql_reads_no_table_of_a_product() -> None:
    assert {package.name for package in installed_packages()} >= {"batches", "llm", "speech"}
    theirs = {
        table for file in (ROOT / "products").rglob("schema/*.sql") for table in tables_of(file)
    }
    assert {"batches", "voices", "llm_assignments", "generations"} <= theirs
    found = {
        str(file.relative_to(ROOT)): names
        for file in files(".sql")
        if (names := theirs & set(re.findall(r"\w+", file.read_text())))
    }
    assert found == {}


def test_no_fragment_of_a_statement_hides_a_table_that_another_fragment_reads() -> None:
    """A CTE that is named like a table stands for it in everything that the statement includes."""
    tables = {table for file in ROOT.rglob("schema/*.sql") for table in tables_of(file)}
    including = {
        f"{file.relative_to(ROOT)}: {part.partition(chr(10))[0]}": part
        for file in ROOT.rglob("*.sql")
        for part in file.read_text().split("-- name: ")
        if re.search(r"/\* include (\S+:)?(?:webhooks/write_deliveries|jobs/ended)", part)
    }
    assert len(including) > 10
    found = {name: tables & set(CTE.findall(part)) for name, part in including.items()}
    assert {name: names for name, names in found.items() if names} == {}
