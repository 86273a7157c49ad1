"""The arguments of every scenario."""

from dataclasses import dataclass
from pathlib import Path

from bench.client_process import ClientProcess
from bench.contenders.contract import Contender
from bench.processes import Processes
from bench.sizes import Sizes
from bench.stores import Stores


@dataclass(frozen=True)
class Context:
    """One contender's turn in one round."""

    contender: Contender
    client: ClientProcess
    stores: Stores
    processes: Processes
    folder: Path
    sizes: Sizes
    # Jobs per second by worker count, as measured so far: sizes the next drain.
    drain_rates: dict[int, float]
