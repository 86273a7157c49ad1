"""The parts that code falls into: files that import and call each other more than others.

Found by a library's community detection (Louvain, over the files of the archive), which is given
whole numbers and a fixed seed, so that the same archive falls into the same parts. Named by the
folder they share and the words of their identifiers; someone who understands them may name them
better, see ``DomainMarks``.

A domain of some size falls into subdomains, which are found in the same way among its own files.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coatcheck_codegraph.domain_names import DomainName, NamedFile, name_domains, words_of

if TYPE_CHECKING:
    import networkx

_SEED: Final = 0
_SAME_FOLDER: Final = 0.05
"""How much two files hang together that only share a folder: enough for those without any other
tie, too little to hold against one."""

_PAIRS_MAX: Final = 200_000
"""Pairs of files that hang together: of more, the strongest count."""

_DIVIDED_FILES_MIN: Final = 6
_SUBDOMAIN_FILES_MIN: Final = 2
_RESOLUTIONS: Final = (1.0, 1.5, 2.0)
"""How finely a domain is looked at, one after the other, until it falls into several parts."""
_KEY_FILES_MAX: Final = 10


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
class Subdomain:
    """A part of a domain. ``files`` are numbers of files."""

    name: str
    description: str
    path: str
    keywords: tuple[str, ...]
    files: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """A part. ``files`` are numbers of files; ``uses`` the places of other domains in the list, and
    ``strengths`` which share each of them has in all that this one uses of others.

    ``key_files`` are those that most of its files use or are used by. Every file is in one of the
    ``subdomains``, if there are any.
    """

    name: str
    description: str
    path: str
    keywords: tuple[str, ...]
    files: tuple[int, ...]
    uses: tuple[int, ...]
    strengths: tuple[float, ...] = ()
    key_files: tuple[int, ...] = ()
    subdomains: tuple[Subdomain, ...] = ()


def find_domains(files: Sequence[DomainFile], links: Iterable[Link]) -> list[Domain]:
    """Every file is in one domain. The largest domain comes first."""
    if not files:
        return []
    links = list(links)
    graph = _graph(files, links)
    groups = _communities(graph)
    named_files = _as_named(files, links, groups)
    named = name_domains(named_files)
    used = _used(links, groups)
    divided = _subdomains(files, links, [_divided(files, graph, group) for group in groups], named)
    return [
        Domain(
            name,
            _description(len(group), folder, keywords),
            folder,
            keywords,
            tuple(group),
            tuple(used[at]),
            tuple(used[at].values()),
            _key_files(group, named_files[at]),
            divided[at],
        )
        for at, (group, (name, folder, keywords)) in enumerate(zip(groups, named, strict=True))
    ]


def _used(links: Iterable[Link], groups: Sequence[Sequence[int]]) -> list[dict[int, float]]:
    """What each group uses of others: their places, in order, and the share of each."""
    home = {file: at for at, group in enumerate(groups) for file in group}
    weights: list[dict[int, float]] = [{} for _ in groups]
    # In their order, so that sums come out the same whatever the order of links is.
    for link in sorted(links, key=lambda link: (link.user, link.used, link.weight)):
        user, used = home[link.user], home[link.used]
        if user != used:
            weights[user][used] = weights[user].get(used, 0.0) + link.weight
    return [{used: round(of[used] / sum(of.values()), 4) for used in sorted(of)} for of in weights]


def _key_files(group: Sequence[int], named: Sequence[NamedFile]) -> tuple[int, ...]:
    ranked = sorted(zip(group, named, strict=True), key=lambda each: (-each[1].ties, each[1].path))
    return tuple(number for number, _ in ranked[:_KEY_FILES_MAX])


def _subdomains(
    files: Sequence[DomainFile],
    links: Iterable[Link],
    divided: Sequence[Sequence[Sequence[int]]],
    domains: Sequence[DomainName],
) -> list[tuple[Subdomain, ...]]:
    """The subdomains of each domain, with names that no other and no domain has."""
    groups = [group for parts in divided for group in parts]
    taken = {domain.name: domain.folder for domain in domains}
    named = iter(name_domains(_as_named(files, links, groups), taken))
    return [
        tuple(
            Subdomain(
                (found := next(named)).name,
                _description(len(group), found.folder, found.keywords),
                found.folder,
                found.keywords,
                tuple(group),
            )
            for group in parts
        )
        for parts in divided
    ]


def _divided(
    files: Sequence[DomainFile], graph: networkx.Graph[int], group: Sequence[int]
) -> list[list[int]]:
    """The parts that a domain falls into, the largest first; none if it is one of its own."""
    import networkx

    if len(group) < _DIVIDED_FILES_MIN:
        return []
    members = set(group)
    ties: Iterable[tuple[int, int, float]] = graph.edges(group, data="weight")
    within: networkx.Graph[int] = networkx.Graph()
    within.add_nodes_from(group)
    within.add_weighted_edges_from(
        sorted(
            (min(one, other), max(one, other), weight)
            for one, other, weight in ties
            if one in members and other in members
        )
    )
    for resolution in _RESOLUTIONS:
        parts = _of_some_size(within, _communities(within, resolution))
        if len(parts) > 1:
            return parts
    folders: dict[str, list[int]] = {}
    for number in group:
        folders.setdefault(posixpath.dirname(files[number].path), []).append(number)
    parts = _of_some_size(within, _largest_first(folders.values()))
    return parts if len(parts) > 1 else []


def _of_some_size(within: networkx.Graph[int], parts: Sequence[Sequence[int]]) -> list[list[int]]:
    """The parts, with those of a single file added to the part that it hangs together with most."""
    kept = [list(part) for part in parts if len(part) >= _SUBDOMAIN_FILES_MIN]
    if len(kept) < len(parts) and kept:
        home = {number: at for at, part in enumerate(kept) for number in part}
        for part in parts[len(kept) :]:
            for number in part:
                ties = [0.0] * len(kept)
                for other, tie in within[number].items():
                    if other in home:
                        ties[home[other]] += tie["weight"]
                kept[ties.index(max(ties))].append(number)
    return _largest_first(kept)


def _largest_first(groups: Iterable[Iterable[int]]) -> list[list[int]]:
    return sorted((sorted(group) for group in groups), key=lambda group: (-len(group), group))


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


def _communities(graph: networkx.Graph[int], resolution: float = 1.0) -> list[list[int]]:
    import networkx

    return _largest_first(
        networkx.community.louvain_communities(
            graph, weight="weight", resolution=resolution, seed=_SEED
        )
    )


def _as_named(
    files: Sequence[DomainFile],
    links: Iterable[Link],
    groups: Sequence[Sequence[int]],
) -> list[list[NamedFile]]:
    home = {file: at for at, group in enumerate(groups) for file in group}
    ties: list[set[int]] = [set() for _ in files]
    for link in links:
        if link.user != link.used and home.get(link.user) == home.get(link.used):
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
