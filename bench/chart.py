"""The ratios as a bar chart."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from bench.catalogue import FIGURES, Figure
from bench.contenders.contract import Contender
from bench.results import Results

OURS = "coatcheck"
OURS_COLOUR = "#c2410c"
PEER_COLOURS = ("#1e3a8a", "#3b82f6", "#0f766e", "#6b7280", "#a8a29e", "#7c3aed")
GROUP_WIDTH = 0.84


def write_chart(
    results: Results, contenders: Sequence[Contender], reference: Contender, path: Path
) -> bool:
    """Draws a group of bars per figure, on a logarithmic scale; False if there is no reference."""
    figures = [figure for figure in FIGURES if results.spread(reference.name, figure)]
    if not figures:
        return False
    canvas, axes = plt.subplots(figsize=(2 + 1.7 * len(figures), 5.5))
    # The reference is the line at 1 that all bars grow from, up for better and down for worse.
    compared = [contender for contender in contenders if contender.name != reference.name]
    peer_colours = iter(PEER_COLOURS)
    for position, contender in enumerate(compared):
        colour = OURS_COLOUR if contender.name == OURS else next(peer_colours)
        ratios = [results.ratio(contender.name, reference.name, figure) for figure in figures]
        offset = (position - (len(compared) - 1) / 2) * GROUP_WIDTH / len(compared)
        _draw_bars(axes, contender.label, ratios, offset, GROUP_WIDTH / len(compared), colour)
    axes.axhline(1, color="black", linewidth=1, label=reference.label)
    _label(axes, figures, reference)
    canvas.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(canvas)
    return True


def _draw_bars(
    axes: Axes,
    label: str,
    ratios: Sequence[float | None],
    offset: float,
    width: float,
    colour: str,
) -> None:
    drawn = [(group + offset, ratio) for group, ratio in enumerate(ratios) if ratio is not None]
    axes.bar(
        [place for place, _ in drawn],
        [ratio - 1 for _, ratio in drawn],
        width,
        bottom=1,
        label=label,
        color=colour,
    )
    for place, ratio in drawn:
        axes.annotate(
            f"{ratio:.2g}",
            (place, ratio),
            xytext=(0, 2 if ratio >= 1 else -2),
            textcoords="offset points",
            ha="center",
            va="bottom" if ratio >= 1 else "top",
            fontsize=6.5,
        )


def _label(axes: Axes, figures: Sequence[Figure], reference: Contender) -> None:
    axes.set_yscale("log")
    titles = [
        figure.title.replace(", ", ",\n").replace(" a waiter ", "\na waiter ") for figure in figures
    ]
    axes.set_xticks(range(len(figures)), titles, fontsize=8)
    axes.set_ylabel(f"times as good as {reference.label} (logarithmic)")
    axes.set_title("Same work, same machine, same PostgreSQL: above 1 is better")
    axes.legend(ncols=7, fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12))
    axes.spines[["top", "right"]].set_visible(False)
