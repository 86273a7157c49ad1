"""Finds the domains of code: groups of files that import and call each other more than others.

A library's community detection (Louvain) runs over the files of the archive. It gets whole numbers
and a fixed seed, so that the same archive always has the same domains. Domains are named after the
folder that their files share and the words of their identifiers; a caller may rename them, see
``DomainMarks``.

A domain of some size has subdomains, which are found in the same way among its own files."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import networkx


# A domain is named after the folder that its files share, and the words that are typical of them.
#
# The names of files say more about the purpose of a domain than the names in them. Files that the
# others use most weigh most, and so do words that few other files have.

_MOST: Final = 0.6
"""The share of a domain's files that must be in a folder for the domain to be named after it."""
_KEYWORDS_MAX: Final = 8
_FILE_NAME_WEIGHT: Final = 2
_WORD_CHARACTERS_MIN: Final = 3
_ROOT_CHARACTERS: Final = 5
"""Words that begin with this many equal letters are forms of one word."""
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_COMMON_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """
        get set has add new init main test tests run make create the from for and with self this str
        int bool list dict object value values data item items name names type types key call func
        function class method impl base default index src lib core util utils common helper helpers
        string file files error not any all try use obj arg args kwargs len err ctx val tmp num mod
        constructor conftest spec
        """,
    )
)
"""Words that any code has, and that say nothing about its purpose."""
_COMMON_FOLDERS: Final = frozenset(
    re.findall(
        r"\w+",
        """
        src source sources lib libs dist build out main internal common core util utils pkg packages
        modules app code java org com net include
        """,
    )
)
"""Folders that any code has: the folders above or below say more."""


class NamedFile(NamedTuple):
    """A file's name and words, and the number of files in its domain that it uses or is used by."""

    path: str
    words: frozenset[str]
    ties: int


class DomainName(NamedTuple):
    """A name of a domain. ``folder`` holds most of the domain's files, if one does."""

    name: str
    folder: str
    keywords: tuple[str, ...]


def words_of(path: str, identifiers: Iterable[str]) -> frozenset[str]:
    """The words in the names of a file and of its declarations."""
    return frozenset(word for text in (_stem(path), *identifiers) for word in _words_in(text))


def name_domains(
    domains: Sequence[Sequence[NamedFile]], taken: Mapping[str, str] | None = None
) -> list[DomainName]:
    """A unique name for each domain. ``taken`` has the names that are in use, each with the folder
    of its domain."""
    everywhere = Counter(word for files in domains for file in files for word in file.words)
    top = _common_folder([file.path for files in domains for file in files])
    taken = dict(taken or {})
    named = []
    for files in domains:
        folder = _home_folder([file.path for file in files])
        keywords = _keywords(files, everywhere)
        candidates = _candidates(files, "" if folder == top else folder, keywords, taken)
        name = next(name for name in candidates if name and name not in taken)
        taken[name] = folder
        named.append(DomainName(name, folder, keywords))
    return named


def _keywords(files: Sequence[NamedFile], everywhere: Mapping[str, int]) -> tuple[str, ...]:
    """The words that are typical of these files: frequent, of high weight, rare in other files."""
    frequent = Counter(word for file in files for word in file.words)
    scores = Counter(frequent)
    for file in files:
        for word in _words_in(_stem(file.path)):
            scores[word] += _FILE_NAME_WEIGHT + file.ties
    ranked = sorted(
        frequent, key=lambda word: (-scores[word] * frequent[word] / everywhere[word], word)
    )
    return tuple(ranked[:_KEYWORDS_MAX])


def _candidates(
    files: Sequence[NamedFile], folder: str, keywords: Sequence[str], taken: Mapping[str, str]
) -> Iterator[str]:
    """Candidate names, best first; the last is certainly free."""
    parts = [part for part in folder.split("/") if part]
    distinctive = [part for part in parts if part.lower() not in _COMMON_FOLDERS]
    title = _titled(distinctive[-1]) if distinctive else ""
    if title:
        yield title
        if taken.get(title) != folder:
            # Another folder has this title: the folders above distinguish the two.
            above = [
                *reversed(distinctive[:-1]),
                *(part for part in parts if part not in distinctive),
            ]
            yield from (f"{_titled(part)} {title}" for part in above)
    elif len(files) == 1:
        yield _titled(_stem(files[0].path))
    words = [_titled(word) for word in keywords if not _says(title, word)]
    if title:
        yield from (f"{title} {word}" for word in words)
    elif words:
        first, *others = words
        yield from (f"{first} and {other}" for other in others if not _says(first, other))
        yield first
    plain = title or (words[0] if words else "Part")
    number = 2
    while f"{plain} {number}" in taken:
        number += 1
    yield f"{plain} {number}"


def _says(title: str, word: str) -> bool:
    """Whether a title already has the word, perhaps in another form."""
    return word[:_ROOT_CHARACTERS].lower() in (
        part[:_ROOT_CHARACTERS].lower() for part in title.split()
    )


def _home_folder(paths: Sequence[str]) -> str:
    """The deepest folder that contains most of the files."""
    inside: Counter[str] = Counter()
    for path in paths:
        folder = posixpath.dirname(path)
        while folder:
            inside[folder] += 1
            folder = posixpath.dirname(folder)
    most = [folder for folder, files in inside.items() if files >= _MOST * len(paths)]
    return min(most, key=lambda folder: (-folder.count("/"), folder), default="")


def _common_folder(paths: Sequence[str]) -> str:
    folders = [posixpath.dirname(path) for path in paths]
    return posixpath.commonpath(folders) if folders else ""


def _words_in(text: str) -> set[str]:
    found = {
        word.lower() for letters in _LETTERS.findall(text) for word in _HUMP.split(letters)
    } - _COMMON_WORDS
    return {word for word in found if len(word) >= _WORD_CHARACTERS_MIN or not word.isascii()}


def _stem(path: str) -> str:
    name = posixpath.basename(path)
    return name[: name.index(".", 1)] if "." in name[1:] else name


def _titled(text: str) -> str:
    return " ".join(
        word.capitalize() if word.islower() else word for word in re.split(r"[\W_]+", text) if word
    )


_SEED: Final = 0
_SAME_FOLDER: Final = 0.05
"""The weight between files that only share a folder: enough for files without any other link, too
little to outweigh one."""

PAIRS_MAX: Final = 200_000
"""The number of linked pairs of files; with more, only the strongest count."""

_DIVIDED_FILES_MIN: Final = 6
_SUBDOMAIN_FILES_MIN: Final = 2
_RESOLUTIONS: Final = (1.0, 1.5, 2.0)
"""Resolutions that are tried in turn until a domain splits into several parts."""
_KEY_FILES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class DomainFile:
    """A file, and the names of its declarations."""

    path: str
    identifiers: Sequence[str]


@dataclass(frozen=True, slots=True)
class Link:
    """A use of one file by another, by their indexes, with its weight."""

    user: int
    used: int
    weight: float


@dataclass(frozen=True, slots=True)
class Subdomain:
    """A part of a domain. ``files`` are indexes of files."""

    name: str
    description: str
    path: str
    keywords: tuple[str, ...]
    files: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain. ``files`` are indexes of files; ``uses`` are indexes of other domains, and
    ``strengths`` their shares in all uses of other domains.

    ``key_files`` use, or are used by, the most files of the domain. Every file is in one of the
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
    """Divide files into domains, largest first. Every file is in one domain."""
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
    """The other groups that each group uses: their indexes, in order, and the share of each."""
    home = {file: at for at, group in enumerate(groups) for file in group}
    weights: list[dict[int, float]] = [{} for _ in groups]
    # Sorted, so that floating-point sums do not depend on the order of links.
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
    """The subdomains of each domain, with names that no other subdomain and no domain has."""
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
    """The parts of a domain, largest first; none if it does not divide."""
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
    """The parts, with single files merged into the part that they are linked with most."""
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
    if len(weights) > PAIRS_MAX:
        strongest = sorted(weights.items(), key=lambda tie: (-tie[1], tie[0]))
        weights = dict(strongest[:PAIRS_MAX])
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
