"""The parts about the ``coatcheck`` command: each command with its arguments and options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final

from coatcheck.cli.app import COMMANDS
from coatcheck.cli.server_address import SERVER_OPTIONS
from scripts.reference.parts import Outdated, code, prose, table

_WIDTH: Final = 110
_HEAD: Final = ["argument or option", "meaning"]


def parts() -> Mapping[str, Callable[[], str]]:
    """A part for the list of commands, one for the server's options, and one for each command."""
    each = {f"coatcheck {command.name}": partial(_command, command) for command in COMMANDS}
    return {"the commands": _commands, "the options of the server": _server_options} | each


def _commands() -> str:
    return table(
        ["command", "what it does"],
        (
            [f"[`coatcheck {command.name}`](#coatcheck-{command.name})", prose(command.help or "")]
            for command in COMMANDS
        ),
    )


def _command(lazy: Any) -> str:
    command = lazy.load()
    below = getattr(command, "commands", None)
    if below is None:
        named = {f"coatcheck {lazy.name}": command}
    else:
        named = {f"coatcheck {lazy.name} {name}": each for name, each in below.items()}
    usages = "".join(_usage(name, each) for name, each in named.items())
    texts = "" if below is None else _texts(named)
    return f"```text\n{usages}```\n\n{_help(command.help)}\n{texts}{_parameters(named)}"


def _usage(name: str, command: Any) -> str:
    words = [_usage_word(each) for each in _own(command)]
    if _asks_a_server(command):
        words.append("[SERVER]")
    lines, line = [], name
    for word in words:
        if len(line) + 1 + len(word) > _WIDTH:
            lines.append(line)
            line = " " * len(name)
        line += f" {word}"
    return "".join(f"{each}\n" for each in [*lines, line])


def _usage_word(parameter: Any) -> str:
    word = parameter.metavar if _is_argument(parameter) else parameter.opts[0]
    if parameter.secondary_opts:
        word = f"{word} | {parameter.secondary_opts[0]}"
    if value := _value_name(parameter):
        word = f"{word} {value}"
    if parameter.nargs == -1 or parameter.multiple:
        word = f"{word} ..."
    return word if parameter.required else f"[{word}]"


def _help(text: str | None) -> str:
    if not text:
        raise Outdated("a command has no help text")
    return prose(inspect.cleandoc(text)) + "\n"


def _texts(named: Mapping[str, Any]) -> str:
    """What each command of a group does."""
    rows = [[code(name.rpartition(" ")[2]), prose(each.help or "")] for name, each in named.items()]
    return table(["command", "what it does"], rows) + "\n"


def _parameters(named: Mapping[str, Any]) -> str:
    """One row for each argument and option; equal ones of several commands share one."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, command in named.items():
        for each in _own(command):
            row = (_names(each), _meaning(each))
            rows.setdefault(row, []).append(name.rpartition(" ")[2])
    if not rows:
        return ""
    if len(named) == 1:
        return table(_HEAD, rows)
    return table(
        [_HEAD[0], "of", *_HEAD[1:]],
        (
            [row[0], "all" if len(of) == len(named) else ", ".join(map(code, of)), *row[1:]]
            for row, of in rows.items()
        ),
    )


def _server_options() -> str:
    asking = next(loaded for each in COMMANDS if _asks_a_server(loaded := each.load()))
    options = [each for each in asking.params if each.opts[0] in SERVER_OPTIONS]
    return table(["option", "meaning"], ([_names(each), _meaning(each)] for each in options))


def _asks_a_server(command: Any) -> bool:
    return {*SERVER_OPTIONS} <= {name for each in command.params for name in each.opts}


def _own(command: Any) -> Iterator[Any]:
    """Its arguments and options, without those that every command that asks a server has."""
    asks = _asks_a_server(command)
    for each in command.params:
        if not each.hidden and not (asks and each.opts[0] in SERVER_OPTIONS):
            yield each


def _names(parameter: Any) -> str:
    if _is_argument(parameter):
        return code(parameter.metavar)
    value = _value_name(parameter)
    names: Iterable[str] = [*parameter.opts, *parameter.secondary_opts]
    return ", ".join(code(f"{name} {value}" if value else name) for name in names)


def _is_argument(parameter: Any) -> bool:
    return parameter.param_type_name == "argument"


def _value_name(parameter: Any) -> str:
    """The value of an option as its usage names it; none for a flag."""
    if _is_argument(parameter) or parameter.is_flag:
        return ""
    if parameter.metavar:
        return str(parameter.metavar)
    is_number = parameter.type_descriptor.annotation is int
    return "N" if is_number else parameter.opts[0].rpartition("-")[2].upper()


def _meaning(parameter: Any) -> str:
    if not parameter.help:
        raise Outdated(f"{parameter.name} of a command needs a help text")
    meaning, default = prose(parameter.help), parameter.default
    if default in (None, False, True, "") or "Default" in meaning:
        return meaning
    return f"{meaning} Default: {code(default.value if isinstance(default, Enum) else default)}."
