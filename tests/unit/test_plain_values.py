"""Values of options and arguments: plain ones are converted at once, the others by Typer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

ID = UUID("0198f3a2-7c1e-7d63-9a55-2f1c0e4b8a10")
PROGRAM = """
import json, sys
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from coatcheck.cli.plain_values import convert_plain_values

def command(
    name: Annotated[str, typer.Argument()],
    others: Annotated[list[str] | None, typer.Argument()] = None,
    limit: Annotated[int, typer.Option(min=1, max=50)] = 20,
    every: Annotated[float, typer.Option(min=0.5)] = 2.0,
    state: Annotated[list[str] | None, typer.Option()] = None,
    id: Annotated[UUID | None, typer.Option()] = None,
    file: Annotated[Path | None, typer.Option()] = None,
    length: Annotated[int | None, typer.Option(parser=len)] = None,
    shouted: Annotated[str, typer.Option(callback=lambda text: text.upper())] = "quiet",
    wanted: bool = False,
) -> None:
    values = dict(locals())
    print(json.dumps({k: [type(v).__name__, v] for k, v in values.items()}, default=str))
    print(json.dumps(sorted({"pydantic"} & {*sys.modules})))

if sys.argv.pop(1) == "ours":
    convert_plain_values()
typer.run(command)
"""
PLAIN: list[list[str]] = [
    ["a"],
    ["a", "b", "c", "--limit", "50", "--every", "2.5", "--wanted"],
    ["ä", "--state", "queued", "--state", "failed", "--id", str(ID), "--shouted", "loud"],
    ["", "--limit", "1"],
    ["\udcff"],
]
BY_TYPER: list[list[str]] = [
    ["a", "--limit", "007"],
    ["a", "--limit", " 7 "],
    ["a", "--every", "3"],
    ["a", "--id", ID.hex],
    ["a", "--file", "here"],
    ["a", "--length", "four"],
]
WRONG: list[list[str]] = [
    [],
    ["a", "--limit", "0"],
    ["a", "--limit", "51"],
    ["a", "--limit", "many"],
    ["a", "--every", "nan"],
    ["a", "--id", "1"],
    ["a", "--unknown"],
]


def run(by: str, arguments: Sequence[str]) -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, by, *arguments], capture_output=True, text=True
    )
    return ended.returncode, ended.stdout, ended.stderr


def values(printed: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed.splitlines()[0])
    return found


@pytest.mark.parametrize("arguments", PLAIN, ids=ascii)
def test_plain_values_are_as_typer_converts_them_and_load_no_pydantic(
    arguments: list[str],
) -> None:
    status, said, _ = run("ours", arguments)
    assert status == 0
    assert json.loads(said.splitlines()[1]) == []
    assert values(said) == values(run("typer", arguments)[1])


@pytest.mark.parametrize("arguments", BY_TYPER, ids=ascii)
def test_other_values_are_converted_by_typer(arguments: list[str]) -> None:
    status, said, _ = run("ours", arguments)
    assert status == 0
    assert values(said) == values(run("typer", arguments)[1])


@pytest.mark.parametrize("arguments", WRONG, ids=ascii)
def test_a_wrong_value_is_refused_as_typer_refuses_it(arguments: list[str]) -> None:
    refused = run("ours", arguments)
    assert refused[0] == 2
    assert refused == run("typer", arguments)
