"""G. No payload byte outlives its retention: searches disks, blobs, logs and every table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from chaos.checker.evidence import Connection, Evidence
from chaos.checker.finding import Finding
from chaos.files import files_below

CHECK = "canaries"
PLACES = ("blobs", "temp", "logs")
_PREFIX_BYTES_MIN = 6
_PIECE_BYTES = 1 << 20


async def no_canary_is_left(evidence: Evidence) -> list[Finding]:
    return [Finding(CHECK, "G", place) for place in await places_with(evidence)]


async def places_with(evidence: Evidence) -> list[str]:
    """The places where a canary can still be found."""
    words = needles(evidence.canaries)
    if not words:
        return []
    files = [
        f"file {path.relative_to(evidence.folder)}"
        for path in _files(evidence)
        if _holds(path, words)
    ]
    return files + await tables_with(evidence.sql, words)


def needles(canaries: Sequence[bytes]) -> list[bytes]:
    """What to search for: the common prefix of the canaries, if it is long enough."""
    if not canaries:
        return []
    first, last = min(canaries), max(canaries)
    length = next(
        (n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first)
    )
    return [first[:length]] if length >= _PREFIX_BYTES_MIN else list(canaries)


async def tables_with(connection: Connection, words: Sequence[bytes]) -> list[str]:
    """The tables with rows that contain one of these words, as text or bytes, and the counts."""
    tables = await connection.fetch(
        """
        SELECT c.oid::regclass::text AS name FROM pg_class AS c
        WHERE c.relkind IN ('r', 'p', 'm') AND c.relnamespace = 'public'::regnamespace
        ORDER BY 1
        """
    )
    spelt = [f"%{each}%" for word in words for each in (_escaped(word.decode()), word.hex())]
    found = []
    for (name,) in tables:
        hits = await connection.fetch(
            f"SELECT left(t::text, 200) AS row FROM {name} AS t WHERE t::text LIKE ANY ($1)",
            spelt,
        )
        if hits:
            found.append(f"table {name}: {len(hits)} rows, such as {hits[0]['row']}")
    return found


def _escaped(word: str) -> str:
    return word.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")


def _files(evidence: Evidence) -> Iterator[Path]:
    for place in PLACES:
        yield from files_below(evidence.folder / place)
    # PostgreSQL's own log.
    logs = (evidence.folder / "logs").resolve()
    yield from (path for path in evidence.log_files() if logs not in path.resolve().parents)


def _holds(path: Path, words: Sequence[bytes]) -> bool:
    longest = max(map(len, words))
    before = b""
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                window = before + piece
                if any(word in window for word in words):
                    return True
                before = window[-longest:]
    except FileNotFoundError:
        pass  # deleted meanwhile, as it should be
    return False
