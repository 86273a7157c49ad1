from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from coatcheck.cli.app import COMMANDS
from coatcheck.cli.server_options import SERVER_OPTIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"


@cache
def sections() -> dict[str, str]:
    _, *parts = PAGE.read_text().split("\n## `coatcheck ")
    return {part.partition("`")[0]: part for part in parts}


@cache
def commands() -> dict[str, Any]:
    return {str(command.name): command.load() for command in COMMANDS}


def test_the_page_has_a_section_for_every_command_and_no_other() -> None:
    assert set(sections()) == set(commands())


def parameters(name: str) -> list[Any]:
    """Those of a command, or of all commands of a group."""
    command = commands()[name]
    below = getattr(command, "commands", {}).values()
    return [*command.params, *(parameter for each in below for parameter in each.params)]


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_of_a_group_is_in_its_section(name: str) -> None:
    for below in getattr(commands()[name], "commands", {}):
        assert f"coatcheck {name} {below}" in sections()[name]


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_option_of_a_command_is_in_its_section(name: str) -> None:
    for parameter in parameters(name):
        if getattr(parameter, "hidden", False) or parameter.param_type_name == "argument":
            continue
        if parameter.opts[0] in SERVER_OPTIONS and "[SERVER]" in sections()[name]:
            continue  # the same for all, and in a section of their own
        assert f"`{parameter.opts[0]}" in sections()[name].replace("[--", "`--")


def test_the_options_of_the_server_are_described_once() -> None:
    which = PAGE.read_text().partition("\n## Which server\n")[2].partition("\n## ")[0]
    for option in SERVER_OPTIONS:
        assert f"| `{option} " in which
