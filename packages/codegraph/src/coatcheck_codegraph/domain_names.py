"""What a domain is called: by the folder that its files share, and the words at home in it.

The names of files say more of what a part is for than the names in them, those of files that the
others of the part lean on most of all; and a word says the more the fewer files elsewhere have it.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

_MOST: Final = 0.6
"""The share of a domain's files that must be in a folder for the domain to be called by it."""
_KEYWORDS_MAX: Final = 8
_FILE_NAME_WEIGHT: Final = 2
_WORD_CHARACTERS_MIN: Final = 3
_ROOT_CHARACTERS: Final = 5
"""Words that begin with the same letters are forms of one."""
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
"""Words that any code has, and that say nothing of what it is for."""
_COMMON_FOLDERS: Final = frozenset(
    re.findall(
        r"\w+",
        """
        src source sources lib libs dist build out main internal common core util utils pkg packages
        modules app code java org com net include
        """,
    )
)
"""Folders that any code has: what is above or in them says more."""


class NamedFile(NamedTuple):
    """What a file is called, what is in it, and how many files of its domain use it or are used."""

    path: str
    words: frozenset[str]
    ties: int


class DomainName(NamedTuple):
    """``folder`` is where most of the domain's files are, if there is such a place."""

    name: str
    folder: str
    keywords: tuple[str, ...]


def words_of(path: str, identifiers: Iterable[str]) -> frozenset[str]:
    """The words in the names of a file and of what it declares."""
    return frozenset(word for text in (_stem(path), *identifiers) for word in _words_in(text))


def name_domains(
    domains: Sequence[Sequence[NamedFile]], taken: Mapping[str, str] | None = None
) -> list[DomainName]:
    """A name for each domain, no two alike. ``taken`` are names that others have, each with the
    folder of whoever has it."""
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
    """The words that are at home here: frequent, weighty, and in few other files."""
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
    """Names from the best to one that is free for certain."""
    parts = [part for part in folder.split("/") if part]
    telling = [part for part in parts if part.lower() not in _COMMON_FOLDERS]
    title = _titled(telling[-1]) if telling else ""
    if title:
        yield title
        if taken.get(title) != folder:
            # One from elsewhere has it: where they are tells them apart.
            above = [*reversed(telling[:-1]), *(part for part in parts if part not in telling)]
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
    """Whether a title has the word already, if perhaps in another form."""
    return word[:_ROOT_CHARACTERS].lower() in (
        part[:_ROOT_CHARACTERS].lower() for part in title.split()
    )


def _home_folder(paths: Sequence[str]) -> str:
    """The deepest folder that most of the files are under."""
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
