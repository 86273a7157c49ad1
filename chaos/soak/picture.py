"""The chart of a soak run: one panel for each kind of series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from chaos.soak.verdict import Rows, names, series

mpl.use("Agg")

# Okabe and Ito's colours, which colour-blind people can distinguish.
_COLOURS: Final = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"
)  # fmt: skip
_LARGEST_SHOWN: Final = 6


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    shows: Callable[[str], bool]
    ending: str = ""
    """Parts of names to omit in the legend."""


def _is_member(name: str, ending: str) -> bool:
    return name.startswith(("server-", "worker-")) and name.endswith(ending)


PANELS: Final[Sequence[Panel]] = (
    Panel("Memory of servers and workers", "MB", lambda name: _is_member(name, " MB"), " MB"),
    Panel("Open files of servers and workers", "", lambda n: _is_member(n, " files"), " files"),
    Panel("Memory of PostgreSQL's processes", "MB", lambda name: name == "postgres MB", " MB"),
    Panel(
        "Connections, and PostgreSQL's processes",
        "",
        lambda name: name in {"connections", "postgres processes"},
    ),
    Panel(
        "Tables and indexes that retention empties",
        "MB",
        lambda name: name in {"tables MB", "indexes MB"},
        " MB",
    ),
    Panel("The largest of them", "MB", lambda name: name.startswith("table "), " MB"),
    Panel("Dead rows, and live ones", "rows", lambda name: name in {"dead rows", "rows"}),
    Panel("Records with a long retention", "MB", lambda name: name == "records MB", " MB"),
    Panel(
        "Blobs and temporary files that retention removes",
        "",
        lambda name: name in {"blobs", "temporary files"},
    ),
    Panel("The oldest transaction", "s", lambda name: name == "oldest transaction s"),
    Panel("From due to claimed", "ms", lambda name: name.startswith("claim "), " ms"),
    Panel("Jobs and tasks ended a second", "", lambda name: name == "ended a second"),
)


def draw(path: Path, rows: Rows, title: str) -> None:
    """Draw a run into a PNG."""
    figure = Figure(figsize=(16, 21), dpi=90, layout="constrained")
    figure.suptitle(f"Soak: {title}", fontsize=15)
    for axes, panel in zip(figure.subplots(6, 2, sharex=True).flat, PANELS, strict=True):
        _panel(axes, panel, rows)
    figure.savefig(path)


def _panel(axes: Axes, panel: Panel, rows: Rows) -> None:
    shown = [name for name in names(rows) if panel.shows(name)]
    shown = sorted(shown, key=lambda name: -max(series(rows, name)[1]))[:_LARGEST_SHOWN]
    for name, colour in zip(sorted(shown), _COLOURS, strict=False):
        times, values = series(rows, name)
        label = name.removesuffix(panel.ending).removeprefix("table ")
        minutes = [time / 60 for time in times]
        axes.plot(minutes, values, color=colour, linewidth=1.4, label=label)
    axes.set_title(panel.title, loc="left", fontsize=11)
    axes.set_ylabel(panel.unit)
    axes.set_ylim(bottom=0)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelbottom=True)
    if len(shown) > 1:
        axes.legend(fontsize=8, ncols=3, frameon=False, loc="best")
    if rows:
        # The judged half: see slopes.py.
        middle = (rows[0]["seconds"] + rows[-1]["seconds"]) / 120
        axes.axvline(middle, color="#999999", linewidth=0.8, linestyle=":")
    axes.set_xlabel("minutes")
