"""The parts that code falls into: files that import and call each other more than others.

Found by a library's community detection (Louvain, over the files of the archive), which is given
whole numbers and a fixed seed, so that the same archive falls into the same parts. Named by the
folder they share and the words of their identifiers; someone who understands them may name them
better, see ``surfaces/graphs/naming.py``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coatcheck.codegraph.domain_names import NamedFile, name_domains, words_of

if TYPE_CHECKING:
    import networkx

_SEED: Final = 0
_SAME_FOLDER: Final = 0.05
"""How much two files hang together that only share a folder: enough for those without any other
tie, too little to hold against one."""

_PAIRS_MAX: Final = 200_000
"""Pairs of files that hang together: of more, the strongest count."""


@dataclass(frozen=True, slots=True)
class DomainFile:
    """A file, and the names of what it declares."""

    path: str
    identifiers: Sequence[str]


@dataclass(frozen=True, slots=True)
class Link:
    """That one file uses another, by their numbers, and how much."""

    user: int
    used: int
    weight: float


@dataclass(frozen=True, slots=True)
class Domain:
    """A part. ``files`` are numbers of files; ``uses`` the places of other domains in the list."""

    name: str
    description: str
    path: str
    keywords: tuple[str, ...]
    files: tuple[int, ...]
    uses: tuple[int, ...]


def find_domains(files: Sequence[DomainFile], links: Iterable[Link]) -> list[Domain]:
    """Every file is in one domain. The largest domain comes first."""
    if not files:
        return []
    links = list(links)
    groups = _communities(_graph(files, links))
    home = {file: at for at, group in enumerate(groups) for file in group}
    uses: list[set[int]] = [set() for _ in groups]
    for link in links:
        user, used = home[link.user], home[link.used]
        if user != used:
            uses[user].add(used)
    named = name_domains(_as_named(files, links, groups, home))
    return [
        Domain(
            name,
            _description(len(group), folder, keywords),
            folder,
            keywords,
            tuple(group),
            tuple(sorted(uses[at])),
        )
        for at, (group, (name, folder, keywords)) in enumerate(zip(groups, named, strict=True))
    ]


def _graph(files: Sequence[DomainFile], links: Iterable[Link]) -> networkx.Graph[int]:
    import networkx  # late: it takes long, and every command would wait for it

    graph: networkx.Graph[int] = networkx.Graph()
    graph.add_nodes_from(range(len(files)))
    weights: dict[tuple[int, int], float] = {}
    for link in links:
        if link.user != link.used:
            pair = (min(link.user, link.used), max(link.user, link.used))
            weights[pair] = weights.get(pair, 0.0) + link.weight
    nearest: dict[str, int] = {}
    for number, file in enumerate(files):
        folder = posixpath.dirname(file.path)
        if folder in nearest:
            pair = (nearest[folder], number)
            weights[pair] = weights.get(pair, 0.0) + _SAME_FOLDER
        nearest[folder] = number
    if len(weights) > _PAIRS_MAX:
        strongest = sorted(weights.items(), key=lambda tie: (-tie[1], tie[0]))
        weights = dict(strongest[:_PAIRS_MAX])
    graph.add_weighted_edges_from(
        (one, other, weight) for (one, other), weight in sorted(weights.items())
    )
    return graph


def _communities(graph: networkx.Graph[int]) -> list[list[int]]:
    import networkx

    found = networkx.community.louvain_communities(graph, weight="weight", seed=_SEED)
    return sorted((sorted(group) for group in found), key=lambda group: (-len(group), group))


def _as_named(
    files: Sequence[DomainFile],
    links: Iterable[Link],
    groups: Sequence[Sequence[int]],
    home: Mapping[int, int],
) -> list[list[NamedFile]]:
    ties: list[set[int]] = [set() for _ in files]
    for link in links:
        if link.user != link.used and home[link.user] == home[link.used]:
            ties[link.user].add(link.used)
            ties[link.used].add(link.user)
    return [
        [
            NamedFile(
                files[number].path,
                words_of(files[number].path, files[number].identifiers),
                len(ties[number]),
            )
            for number in group
        ]
        for group in groups
    ]


def _description(files: int, path: str, keywords: Sequence[str]) -> str:
    counted = "1 file" if files == 1 else f"{files} files"
    where = (
        f", most of them under {path}" if path and files > 1 else (f" in {path}" if path else "")
    )
    about = f"; common words: {', '.join(keywords)}" if keywords else ""
    return f"{counted}{where}{about}."
