"""The Jinja environment. It escapes every value, without exception."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from coatcheck.dashboard import paths, shown
from coatcheck.version import __version__


def templates(asset: Callable[[str], str]) -> Environment:
    """The templates of the dashboard; ``asset`` gives the address of a static file."""
    folder = resources.files("coatcheck.dashboard").joinpath("templates")
    assert isinstance(folder, Path), "the package is installed as files"
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= _globals(asset)
    environment.filters |= {
        "ago": shown.ago,
        "bytes": shown.size,
        "clock": shown.clock,
        "compact": shown.compact,
        "count": shown.count,
        "counted": shown.counted,
        "moment": shown.moment,
        "percent": shown.percent,
        "pretty": shown.pretty,
        "seconds": shown.seconds,
        "share": shown.share,
    }
    return environment


def _globals(asset: Callable[[str], str]) -> dict[str, Any]:
    return {
        "asset": asset,
        "nothing": shown.NOTHING,
        "to": paths.to,
        "version": __version__,
        "with_query": paths.with_query,
    }
