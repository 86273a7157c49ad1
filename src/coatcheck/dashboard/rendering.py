"""The Jinja environment. It escapes every value, without exception."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coatcheck.dashboard import paths
from coatcheck.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment


def between(start: str | None, end: str | None) -> float | None:
    """The seconds from ``start`` to ``end``; None if either is missing."""
    if start is None or end is None:
        return None
    return max((read_time(end) - read_time(start)).total_seconds(), 0.0)


_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_THIN: Final = "\u202f"
_INDENTED_DEPTH_MAX: Final = 8
NOTHING: Final = "\u2013"
"""Shown for a missing value."""


def read_time(text: str | datetime) -> datetime:
    return text if isinstance(text, datetime) else datetime.fromisoformat(text)


def count(number: float | None) -> str:
    """12345 as ``12,345``."""
    return NOTHING if number is None else f"{number:,.0f}"


def counted(number: float, one: str, several: str | None = None) -> str:
    """A count with its noun: ``1 task``, ``12,345 tasks``."""
    return f"{count(number)} {one if number == 1 else several or one + 's'}"


def compact(number: float | None) -> str:
    """12345 as ``12.3k``: used in tiles."""
    if number is None:
        return NOTHING
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size * 0.9995:
            shown = number / size
            return f"{shown:.0f}{unit}" if shown >= 99.95 else f"{shown:.1f}{unit}"
    return f"{number:.0f}" if number == int(number) or number >= 10 else f"{number:.1f}"


def seconds(value: float | None) -> str:
    """0.0123 as ``12 ms``, 75 as ``1 min 15 s``."""
    if value is None:
        return NOTHING
    if value < 0.0005:
        return f"0{_THIN}ms"
    if value < 1:
        return f"{value * 1000:.0f}{_THIN}ms" if value >= 0.01 else f"{value * 1000:.1f}{_THIN}ms"
    if value < 10:
        return f"{value:.1f}{_THIN}s"
    left, parts = round(value), []
    for name, size in _UNITS:
        whole, left = divmod(left, size)
        if whole:
            parts.append(f"{whole}{_THIN}{name}")
        elif parts:
            break
    return " ".join(parts[:2])


def size(value: int | None) -> str:
    """4096 as ``4.0 KiB``."""
    if value is None:
        return NOTHING
    shown, unit = float(value), 0
    while shown >= 1024 and unit < len(_BYTES) - 1:
        shown, unit = shown / 1024, unit + 1
    return f"{shown:.0f}{_THIN}{_BYTES[unit]}" if unit == 0 else f"{shown:.1f}{_THIN}{_BYTES[unit]}"


def percent(fraction: float | None) -> str:
    """0.125 as ``12%``; rounds down, so 100% means finished."""
    return NOTHING if fraction is None else f"{int(fraction * 100 + 1e-9)}%"


def share(fraction: float | None) -> str:
    """0.0213 as ``2.1%``."""
    if fraction is None:
        return NOTHING
    return f"{fraction * 100:.0f}%" if fraction >= 0.1 else f"{fraction * 100:.2g}%"


def ago(moment: str | datetime, now: datetime | None = None) -> str:
    """``3 min ago``, or ``in 3 min``; scripts keep it current."""
    passed = ((now or datetime.now(UTC)) - read_time(moment)).total_seconds()
    away = abs(passed)
    if away < 1:
        return "now"
    name, size_ = next((each for each in _UNITS if away >= each[1]), _UNITS[-1])
    text = f"{int(away // size_)}{_THIN}{name}"
    return f"{text} ago" if passed > 0 else f"in {text}"


def moment(value: str | datetime) -> str:
    """``2026-11-16 15:45:39 UTC``."""
    return read_time(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock(value: str | datetime) -> str:
    """``15:45:39.123``, for timelines and logs, whose day is known."""
    return read_time(value).astimezone(UTC).strftime("%H:%M:%S.%f")[:-3]


def pretty(value: Any) -> str:
    """A JSON value, indented for people. A deeply nested one stays on one line: indentation could
    make a hostile value a thousand times longer."""
    indent = 2 if _is_at_most(value, _INDENTED_DEPTH_MAX) else None
    return json.dumps(value, indent=indent, ensure_ascii=False)


def _is_at_most(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    parts = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_at_most(part, depth - 1) for part in parts)


def templates(asset: Callable[[str], str]) -> Environment:
    """The templates of the dashboard; ``asset`` gives the address of a static file."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # slow to import

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
        "ago": ago,
        "bytes": size,
        "clock": clock,
        "compact": compact,
        "count": count,
        "counted": counted,
        "moment": moment,
        "percent": percent,
        "pretty": pretty,
        "seconds": seconds,
        "share": share,
    }
    return environment


def _globals(asset: Callable[[str], str]) -> dict[str, Any]:
    return {
        "asset": asset,
        "nothing": NOTHING,
        "to": paths.to,
        "version": __version__,
        "with_query": paths.with_query,
    }
