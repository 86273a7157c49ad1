"""Commands whose modules are imported when they are used.

All commands together import most of the product: a server, a worker, a client. Lazy imports keep
``coatcheck --version`` and ``coatcheck jobs`` fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click import Command, Context


class LazyCommand(TyperCommand):
    """A placeholder with a command's name and help text; ``load`` returns the command itself."""

    def __init__(self, name: str, target: str, help: str, panel: str) -> None:  # noqa: A002 - typer's name
        """``target`` is ``module:attribute`` of a function or a group.

        ``panel`` is the heading that the command is listed under.
        """
        super().__init__(name, help=help, rich_help_panel=panel)
        self._target = target

    def load(self) -> Command:
        """Import and return the command or group."""
        module, _, attribute = self._target.partition(":")
        declared = getattr(import_module(module), attribute)
        if isinstance(declared, typer.Typer):
            return typer.main.get_group(declared)
        alone = typer.Typer(add_completion=False)
        alone.command(self.name)(declared)
        return typer.main.get_command(alone)


class LazyGroup(TyperGroup):
    """A group that imports a command when it runs or shows its help."""

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest
