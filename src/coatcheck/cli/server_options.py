"""The options that select the server, shared by all commands that talk to one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import typer

from coatcheck.cli.errors import reporting_errors
from coatcheck.cli.server_address import ServerConfig, ServerOptions, find

Parameters = ParamSpec("Parameters")

_PANEL: Final = "Server"


def _option(*names: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel=_PANEL)


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


_OPTIONS: Final = (
    _parameter("url", str | None, _option("--url", text="Server address. Default: COATCHECK_URL.")),
    _parameter(
        "api_key",
        str | None,
        _option("--api-key", metavar="KEY", text="API key or token. Default: COATCHECK_API_KEY."),
    ),
    _parameter("org", str | None, _option("--org", text="Organisation. Default: COATCHECK_ORG.")),
    _parameter(
        "profile",
        str | None,
        _option("--profile", metavar="NAME", text="Profile of the configuration file."),
    ),
    _parameter(
        "data",
        Path | None,
        _option("--data", metavar="DIR", text="Data folder of `coatcheck up`."),
    ),
)

SERVER_OPTIONS: Final = ("--url", "--api-key", "--org", "--profile", "--data")
"""The reference documents these once, for all commands."""


def on_server(
    command: Callable[Concatenate[ServerConfig, Parameters], None],
) -> Callable[..., None]:
    """Turns a function whose first argument is the server into a command.

    The command has the function's other arguments and the server options, and reports errors in one
    line.
    """
    return _with_options(command, find)


def with_server_options(
    command: Callable[Concatenate[ServerOptions, Parameters], None],
) -> Callable[..., None]:
    """The same for a function that interprets the server options itself."""
    return _with_options(command, lambda options: options)


def _with_options(
    command: Callable[..., None], first_argument: Callable[[ServerOptions], object]
) -> Callable[..., None]:
    signature = inspect.signature(command, eval_str=True)
    _, *own = signature.parameters.values()

    def called(**given: Any) -> None:
        options = ServerOptions(**{option.name: given.pop(option.name) for option in _OPTIONS})
        command(first_argument(options), **given)

    functools.update_wrapper(called, command)
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    parameters += _OPTIONS
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return reporting_errors(called)
