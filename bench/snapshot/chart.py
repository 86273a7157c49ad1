"""The samples of the snapshot scenario over time, as a picture."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from bench.snapshot.figures import TABLES, SnapshotFigure, dead, index_mb, table_mb
from bench.snapshot.report import Samples, ratio

_COLOURS = ("#c2410c", "#1e3a8a", "#0f766e", "#6b7280")


def write_snapshot_chart(samples: Samples, path: Path) -> None:
    canvas, ((claims, rate), (rows, sizes)) = plt.subplots(
        2, 2, figsize=(11, 7), sharex=True, layout="constrained"
    )
    _draw(claims, samples, [SnapshotFigure.PACED_CLAIM, SnapshotFigure.BURST_CLAIM])
    claims.set_title("CPU of claims and completions, us/job")
    _draw(rate, samples, [SnapshotFigure.BURST_RATE])
    rate.set_title("a burst, until it is drained, jobs/s")
    _draw(rows, samples, [dead(table) for table in TABLES])
    rows.set_title("dead rows")
    _draw(
        sizes,
        samples,
        [size(table) for table in ("jobs", "queue") for size in (table_mb, index_mb)],
    )
    sizes.set_title("size, MB")
    for axes in (rows, sizes):
        axes.set_xlabel("minutes with the snapshot held")
    canvas.suptitle(
        "A snapshot held under load: claims cost "
        f"{ratio(samples, SnapshotFigure.PACED_CLAIM):.2f} times as much at the end, "
        f"throughput is {ratio(samples, SnapshotFigure.BURST_RATE):.2f} times that of the start"
    )
    canvas.savefig(path, dpi=110)
    plt.close(canvas)


def _draw(axes: Axes, samples: Samples, figures: Sequence[str]) -> None:
    minutes = [sample[SnapshotFigure.MINUTE] for sample in samples]
    for figure, colour in zip(figures, _COLOURS, strict=False):
        label = figure.replace("_", " ")
        axes.plot(minutes, [sample[figure] for sample in samples], color=colour, label=label)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
