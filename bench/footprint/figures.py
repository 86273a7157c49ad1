"""The names, units and limits of the footprint scenario's figures."""

from dataclasses import dataclass
from enum import StrEnum


class FootprintFigure(StrEnum):
    IMPORT = "import"
    HELP = "help"
    READY = "ready"
    SERVER_RSS = "server_rss"
    SERVER_PSS = "server_pss"
    WORKER_RSS = "worker_rss"
    WORKER_PSS = "worker_pss"


@dataclass(frozen=True)
class Row:
    figure: FootprintFigure
    title: str
    unit: str
    limit: float | None = None


ROWS = (
    Row(FootprintFigure.IMPORT, "CPU of `from coatcheck import Client`", "ms", 150),
    Row(FootprintFigure.HELP, "CPU of `coatcheck --help`", "ms", 250),
    Row(FootprintFigure.READY, "CPU of `coatcheck serve` until it answers", "ms", 1_500),
    Row(FootprintFigure.SERVER_RSS, "an idle server, resident", "MB", 70),
    Row(FootprintFigure.SERVER_PSS, "an idle server, shared pages in parts", "MB"),
    Row(FootprintFigure.WORKER_RSS, "an idle worker, resident", "MB", 70),
    Row(FootprintFigure.WORKER_PSS, "an idle worker, shared pages in parts", "MB"),
)
