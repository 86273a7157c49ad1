"""Coatcheck's targets, checked against a run's figures."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bench import catalogue
from bench.catalogue import Figure
from bench.results import Results

OURS = "coatcheck"
PGQUEUER = "pgqueuer"
GRAPHILE = "graphile_worker"


@dataclass(frozen=True)
class Verdict:
    """One target: what was wanted, what was found, and whether that is enough."""

    wanted: str
    found: str
    reached: bool


def verdicts(results: Results) -> list[Verdict]:
    """The targets whose figures this run has."""
    return [
        verdict
        for verdict in (
            _times(results, catalogue.ENQUEUE, 10, PGQUEUER),
            _times_best(results, catalogue.BULK, 1.5),
            _times(results, catalogue.DRAIN_1, 1.2, PGQUEUER),
            _times(results, catalogue.DRAIN_2, 1.5, PGQUEUER),
            _times(results, catalogue.START_P50, 1, GRAPHILE),
            _seen_within_twice_the_start(results),
            _claim_ignores_history(results),
        )
        if verdict is not None
    ]


def _times(results: Results, figure: Figure, least: float, peer: str) -> Verdict | None:
    ratio = results.ratio(OURS, peer, figure)
    if ratio is None:
        return None
    return Verdict(
        f"{figure.title}: at least {least:g} times {peer}", f"{ratio:.2f} times", ratio >= least
    )


def _times_best(results: Results, figure: Figure, least: float) -> Verdict | None:
    ratios = list(_ratios_to_peers(results, figure))
    if not ratios:
        return None
    peer, ratio = min(ratios, key=lambda pair: pair[1])
    return Verdict(
        f"{figure.title}: at least {least:g} times the best peer",
        f"{ratio:.2f} times {peer}",
        ratio >= least,
    )


def _ratios_to_peers(results: Results, figure: Figure) -> Iterator[tuple[str, float]]:
    peers: Iterable[str] = (name for name in results.rounds if name != OURS)
    for peer in peers:
        ratio = results.ratio(OURS, peer, figure)
        if ratio is not None:
            yield peer, ratio


def _seen_within_twice_the_start(results: Results) -> Verdict | None:
    return _at_most(
        results,
        catalogue.SEEN_P50,
        catalogue.START_P50,
        2.0,
        "result seen by a waiter: at most 2 times the start latency (p50)",
    )


def _claim_ignores_history(results: Results) -> Verdict | None:
    return _at_most(
        results,
        catalogue.CLAIM_HISTORY,
        catalogue.CLAIM_EMPTY,
        1.1,
        "claim with a long history: at most 1.1 times that on an empty table",
    )


def _at_most(
    results: Results, figure: Figure, base: Figure, most: float, wanted: str
) -> Verdict | None:
    mine, theirs = results.spread(OURS, figure), results.spread(OURS, base)
    if mine is None or theirs is None:
        return None
    ratio = mine.median / theirs.median
    return Verdict(wanted, f"{ratio:.2f} times", ratio <= most)
