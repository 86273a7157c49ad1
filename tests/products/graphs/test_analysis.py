"""An archive is analysed: its graph, what is left out of it, what an archive is refused for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from coatcheck.domain.states import Cancelled, Failed
from coatcheck.job import LogLine, ProgressReport
from tests.archives import hostile
from tests.archives.forge import Part, archive
from tests.products.graphs.analysing import Analyst, one_large_file, packed, python_files
from tests.worker.isolation import is_alive

CANARY = "c4n4ry-7f1e"

PROJECT = {
    "shop/__init__.py": "",
    "shop/cart.py": "from shop.prices import price_of\n\n\nclass Cart:\n"
    "    def total(self):\n        return self.sum(price_of('apple'))\n\n"
    "    def sum(self, price):\n        return price\n",
    "shop/prices.py": "import decimal\n\n\ndef price_of(name):\n    return decimal.Decimal(1)\n",
    "web/main.js": "import { start } from './server.js';\n\nstart();\n",
    "web/server.js": "export function start() {}\n",
    "README.md": "# Shop\n",
}


@pytest.fixture
def analyst(tmp_path: Path) -> Iterator[Analyst]:
    """At the end nothing is left of any analysis."""
    root = tmp_path / "temp"
    analyst = Analyst(root)
    yield analyst
    assert list(analyst.temp_root.directory.iterdir()) == []
    analyst.temp_root.close()
    assert list(root.iterdir()) == []


async def test_the_result_is_a_graph_of_all_files(analyst: Analyst) -> None:
    analysed = await analyst.run(packed(PROJECT), operation="supermodel")
    assert analysed.document is not None
    assert analysed.paths == set(PROJECT) - {"README.md"}
    nodes = {node["id"]: node for node in analysed.document["graph"]["nodes"]}
    calls = {
        (
            nodes[each["startNode"]]["properties"].get("qualifiedName"),
            nodes[each["endNode"]]["properties"]["qualifiedName"],
            each["properties"]["line"],
        )
        for each in analysed.document["graph"]["relationships"]
        if each["type"] == "calls"
    }
    assert calls == {
        ("Cart.total", "price_of", 6),
        ("Cart.total", "Cart.sum", 6),
        (None, "start", 3),
    }
    assert analysed.document["metadata"]["languages"] == ["javascript", "python"]
    assert analysed.document["metadata"]["analysisStartTime"] == "2026-11-16T12:00:00.000Z"
    assert analysed.summary == {
        "nodes": len(nodes),
        "relationships": len(analysed.document["graph"]["relationships"]),
        "files_processed": 5,
        "files_failed": 0,
        "files_skipped": 0,
        "languages": ["javascript", "python"],
        "calls": {"resolved": 3, "external": 1, "unresolved": 0},
        "bytes": len(analysed.raw),
    }


@pytest.mark.parametrize("operation", ["dependency", "call", "domain", "parse", "supermodel"])
async def test_every_operation_has_a_result(analyst: Analyst, operation: str) -> None:
    analysed = await analyst.run(packed(PROJECT), operation=operation)
    assert analysed.stats["filesProcessed"] == 5
    assert analysed.stats["nodeCount"] == analysed.summary["nodes"] > 0


async def test_the_graph_is_the_same_whatever_the_number_of_parsers_and_the_order_of_files(
    analyst: Analyst,
) -> None:
    files = python_files(60) | PROJECT
    backwards = dict(reversed(list(files.items())))
    graphs = [
        (await analyst.run(packed(order), operation="supermodel", parsers=parsers)).raw.partition(
            b'"graph":'
        )[2]
        for order, parsers in ((files, 1), (files, 3), (backwards, 2))
    ]
    assert len(graphs[0]) > 10_000
    assert graphs[0] == graphs[1] == graphs[2]


async def test_the_code_of_others_and_what_is_too_large_is_skipped_and_counted(
    analyst: Analyst,
) -> None:
    others = {
        "node_modules/left-pad/index.js": "export default 1;\n",
        "web/node_modules/x.js": "export default 1;\n",
        ".git/hooks/pre-commit.py": "x = 1\n",
        "web/jquery.min.js": "var a=1;\n",
        "large.py": "x = 1\n" * 200,
    }
    analysed = await analyst.run(packed(PROJECT | others), file_bytes_max=1000)
    assert analysed.paths == set(PROJECT) - {"README.md"}
    assert analysed.stats["filesSkippedByReason"] == {
        "vendored": 3,
        "generated": 1,
        "too_large": 1,
    }
    assert analysed.document is not None
    assert analysed.document["metadata"]["fileCount"] == 10


async def test_an_archive_without_source_code_has_an_empty_graph(analyst: Analyst) -> None:
    analysed = await analyst.run(packed({"README.md": "# Nothing\n"}))
    assert analysed.document is not None
    assert analysed.document["graph"] == {"nodes": [], "relationships": []}


async def test_progress_says_how_many_files_were_parsed(analyst: Analyst) -> None:
    analysed = await analyst.run(packed(python_files(30)))
    told = analysed.recorder.of(ProgressReport)
    notes = [report.note for report in told]
    assert notes[0] == "0 of 30 files"
    assert "30 of 30 files" in notes
    fractions = dict(zip(notes, (report.fraction for report in told), strict=True))
    assert fractions["resolving names"] < fractions["writing the graph"] < 1.0
    assert told[-1].fraction == 1.0
    assert [report.fraction for report in told] == sorted(report.fraction for report in told)


async def test_nothing_that_a_file_says_gets_into_the_result_or_the_log(analyst: Analyst) -> None:
    files = {
        "canary.py": f'# {CANARY}\nx = "{CANARY}"\n\ndef f(a="{CANARY}"):\n    """{CANARY}"""\n'
        f'    raise ValueError("{CANARY}")\n',
        "broken.py": f'def ((("{CANARY}\n',
        f"{'deep/' * 3}deep.js": "(" * 50_000 + f'"{CANARY}"' + ")" * 50_000,
        "canary.txt": CANARY,
        "package.json": '{"name": 1, "scripts": "' + CANARY,
    }
    analysed = await analyst.run(packed(files))
    assert analysed.stats["filesProcessed"] + analysed.stats["filesFailed"] == 4
    assert CANARY.encode() not in analysed.raw
    assert CANARY not in json.dumps(analysed.summary)
    assert CANARY not in repr(analysed.recorder.reports)


READER_CASES = [case for case in hostile.CASES if case.where == "reader"]


@pytest.mark.parametrize("case", READER_CASES, ids=lambda case: case.name)
async def test_an_archive_that_only_reading_shows_to_be_bad_fails_the_job(
    analyst: Analyst, case: hostile.Hostile
) -> None:
    analysed = await analyst.run(case.build())
    assert isinstance(analysed.outcome, Failed)
    assert analysed.outcome.code == "archive_rejected"
    assert analysed.outcome.message.endswith(f"({case.reason})")


async def test_every_byte_that_is_parsed_is_checked(analyst: Analyst) -> None:
    data = archive(Part(b"good.py"), Part(b"lies.py", b"x = 1\n", crc=1), Part(b"other.py"))
    analysed = await analyst.run(data)
    assert isinstance(analysed.outcome, Failed)
    assert analysed.outcome.message.endswith("(checksum_mismatch)")


async def test_a_cancelled_analysis_stops_all_its_processes(analyst: Analyst) -> None:
    running = await analyst.start(packed({f"f{at}.py": one_large_file() for at in range(20)}))
    parsers = await running.parsers(2)
    running.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.task
    assert not any(is_alive(process.pid) for process in [running.process, *parsers])


async def test_an_analysis_that_is_asked_to_stop_does(analyst: Analyst) -> None:
    running = await analyst.start(packed({f"f{at}.py": one_large_file() for at in range(20)}))
    parsers = await running.parsers(2)
    running.job.mark_cancel_requested()
    analysed = await running.task
    assert analysed.outcome == Cancelled()
    assert not any(is_alive(process.pid) for process in parsers)


async def test_failures_of_files_are_in_the_log_by_path_and_reason(analyst: Analyst) -> None:
    files = {"large.py": one_large_file(), "small.py": "x = 1\n"}
    analysed = await analyst.run(packed(files), file_seconds=0.01)
    assert [(line.message, line.fields) for line in analysed.recorder.of(LogLine)] == [
        ("a file was not analysed", {"path": "large.py", "reason": "timeout"})
    ]


async def test_calls_that_lead_out_of_the_archive_are_in_the_graph_if_asked_for(
    analyst: Analyst,
) -> None:
    analysed = await analyst.run(packed(PROJECT), external_calls=True)
    assert analysed.document is not None
    names = [
        node["properties"]["name"]
        for node in analysed.document["graph"]["nodes"]
        if node["labels"] == ["ExternalFunction"]
    ]
    assert names == ["decimal.Decimal"]
