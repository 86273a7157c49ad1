"""The chart of a run: submitted, finished and waiting jobs, and the faults below."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

mpl.use("Agg")

Row = Mapping[str, Any]

# Okabe and Ito's colours, which colour-blind people can distinguish; and a mark each.
_CAME: Final = "#0072B2"
_ENDED: Final = "#009E73"
_WAITING: Final = "#E69F00"
_KINDS: Final = {
    "kill-server": ("kill -9", "#D55E00", "X"),
    "kill-worker": ("kill -9", "#D55E00", "X"),
    "kill-postgres": ("kill -9", "#D55E00", "X"),
    "pause": ("paused", "#CC79A7", "s"),
    "drain": ("SIGTERM", "#000000", "v"),
    "cut": ("cut", "#0072B2", "|"),
    "delay": ("delayed", "#56B4E9", "D"),
    "half-open": ("half-open", "#E69F00", "o"),
    "lost-commit": ("COMMIT's answer lost", "#009E73", "P"),
    "lost-answer": ("HTTP answer lost", "#999999", "*"),
}
_WIRES: Final = frozenset({"cut", "delay", "half-open", "lost-commit", "lost-answer"})
_LANES: Final = ("servers", "workers", "PostgreSQL", "wires")
_SHORT_SECONDS: Final = 0.5
_NAME_WIDTH: Final = 0.04
"""The share of the chart that a fault's name takes."""
_POINTS_MAX: Final = 300
"""The points of a curve. A run of half an hour is shown by sums of a few seconds."""


def draw(
    path: Path, curves: Mapping[str, Sequence[int]], history: Sequence[Row], title: str
) -> None:
    """Draw a run into a PNG of 1600 x 900."""
    end = max((row["t"] for row in history), default=1.0)
    figure = Figure(figsize=(16, 9), dpi=100, layout="constrained")
    figure.suptitle(f"Chaos: {title}", fontsize=15)
    flow, backlog, struck = figure.subplots(
        3, 1, sharex=True, gridspec_kw={"height_ratios": [3, 2, 2.4]}
    )
    _flow(flow, curves)
    _backlog(backlog, history)
    _struck(struck, history)
    for axes in (flow, backlog, struck):
        _stages(axes, history, named=axes is flow)
        axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    struck.set_xlim(0, end * 1.04)
    struck.set_xlabel("seconds since the run began")
    figure.savefig(path)


def _flow(axes: Axes, curves: Mapping[str, Sequence[int]]) -> None:
    submitted, ended = curves.get("submitted", []), curves.get("ended", [])
    step = max(1, -(-len(submitted) // _POINTS_MAX))
    for numbers, label, colour in (
        (submitted, "came", _CAME),
        (ended, "ended", _ENDED),
    ):
        times, rates = _rates(numbers, step)
        axes.step(times, rates, where="post", color=colour, linewidth=1.4, label=label)
    axes.set_ylabel("jobs and tasks a second")
    _scaled(axes)
    axes.legend(loc="upper left", ncols=2, edgecolor="none", framealpha=0.8)


def _scaled(axes: Axes) -> None:
    """A scale that shows both a list of two thousand tasks and single jobs."""
    axes.set_yscale("symlog", linthresh=10, linscale=0.8)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(bottom=0)


def _rates(numbers: Sequence[int], step: int) -> tuple[list[int], list[float]]:
    times = list(range(0, len(numbers), step))
    return times, [sum(numbers[at : at + step]) / step for at in times]


def _backlog(axes: Axes, history: Sequence[Row]) -> None:
    samples = [
        row for row in history if row["kind"] == "sample" and row.get("source") == "database"
    ]
    seen = [row for row in samples if row["reachable"]]
    times = [row["t"] for row in seen]
    held = [row["held"] for row in seen]
    waiting = [row["queued"] + row["postponed"] + row["held"] for row in seen]
    axes.fill_between(
        times, held, waiting, step="post", color=_WAITING, alpha=0.6, label="waiting", linewidth=0
    )
    axes.fill_between(times, held, step="post", color=_CAME, alpha=0.6, label="held", linewidth=0)
    for at, until in _spans(samples):
        axes.axvspan(at, until, color="#BBBBBB", alpha=0.7, linewidth=0)
    axes.set_ylabel("jobs that have not ended\n(grey: no database)")
    _scaled(axes)
    axes.legend(loc="upper left", ncols=2, edgecolor="none", framealpha=0.8)


def _spans(samples: Sequence[Row]) -> Iterable[tuple[float, float]]:
    """From the first sample that found no database to the next that found one."""
    since: float | None = None
    for row in samples:
        if not row["reachable"]:
            since = row["t"] if since is None else since
        elif since is not None:
            yield since, row["t"]
            since = None


def _struck(axes: Axes, history: Sequence[Row]) -> None:
    places = {name: float(len(_LANES) - 1 - at) for at, name in enumerate(_LANES)}
    shown: dict[str, tuple[str, str]] = {}
    for name, target, begin, end in _faults(history):
        label, colour, marker = _KINDS.get(name, (name, "#999999", "."))
        shown[label] = (colour, marker)
        lane = "wires" if name in _WIRES else _lane(target)
        height = places[lane] + _offset(lane, name, target)
        if end - begin > _SHORT_SECONDS and lane != "PostgreSQL":
            axes.hlines(height, begin, end, color=colour, linewidth=5, alpha=0.45)
        axes.plot(begin, height, marker=marker, color=colour, markersize=7, linestyle="none")
    axes.set_yticks(list(places.values()), list(places))
    axes.set_ylim(-0.5, len(_LANES) - 0.5)
    for place in places.values():
        axes.axhline(place - 0.5, color="#DDDDDD", linewidth=0.8)
    handles = [
        Line2D([], [], marker=marker, color=colour, linestyle="none", markersize=8, label=label)
        for label, (colour, marker) in shown.items()
    ]
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.22),
        ncols=max(1, len(handles)),
        frameon=False,
    )


def _faults(history: Sequence[Row]) -> Iterable[tuple[str, str, float, float]]:
    """Name, target, start and end of each fault that had an effect."""
    begun: dict[object, Row] = {}
    for row in history:
        if row["kind"] != "fault":
            continue
        number = row.get("number", (row["name"], row["target"]))
        if row["phase"] == "begin":
            begun[number] = row
        elif row.get("effect", 1):
            yield row["name"], row["target"], begun.get(number, row)["t"], row["t"]


def _lane(target: str) -> str:
    return {"server": "servers", "worker": "workers"}.get(target.partition("-")[0], "PostgreSQL")


def _offset(lane: str, name: str, target: str) -> float:
    """Within a group, each process and each kind of connection fault has its own line."""
    if lane == "wires":
        kinds = sorted(_WIRES)
        return -0.36 + 0.72 * kinds.index(name) / (len(kinds) - 1)
    number = target.rpartition("-")[2]
    return {"1": 0.25, "2": 0.0, "3": -0.25}.get(number, 0.0)


def _stages(axes: Axes, history: Sequence[Row], *, named: bool) -> None:
    stages = [row for row in history if row["kind"] == "stage"]
    end = max((row["t"] for row in history), default=1.0)
    for row, following in zip_longest(stages, stages[1:]):
        axes.axvline(row["t"], color="#555555", linewidth=1, linestyle=":")
        if named:
            # The label of a short one is on its left, away from the label of the next.
            is_short = following is not None and following["t"] - row["t"] < _NAME_WIDTH * end
            axes.annotate(
                row["name"],
                (row["t"], 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(-3 if is_short else 3, 2),
                textcoords="offset points",
                horizontalalignment="right" if is_short else "left",
                fontsize=9,
                color="#555555",
            )
