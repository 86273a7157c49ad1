"""Checks an export against its manifest, and the manifest against the batch."""

import hashlib
import json
import zipfile
from pathlib import Path

_PIECE_BYTES = 1024 * 1024


class ExportWrongError(RuntimeError):
    """An export is wrong."""


def check_export(path: Path, tasks: int) -> None:
    """Opens the zip, and checks the counts and checksums of its files."""
    with zipfile.ZipFile(path) as pack:
        manifest = json.loads(pack.read("manifest.json"))
        for entry in manifest["files"]:
            found = _summed_up(pack, entry["name"])
            expected = (entry["lines"], entry["bytes"], entry["sha256"])
            if found != expected:
                raise ExportWrongError(f"{entry['name']} has {found}, its manifest says {expected}")
        results = next(entry for entry in manifest["files"] if entry["name"] == "results.ndjson")
    counts = manifest["counts"]
    if not (counts["total"] == counts["succeeded"] == results["lines"] == tasks):
        raise ExportWrongError(f"{tasks} tasks were exported as {counts}")


def _summed_up(pack: zipfile.ZipFile, name: str) -> tuple[int, int, str]:
    lines = size = 0
    digest = hashlib.sha256()
    with pack.open(name) as file:
        while piece := file.read(_PIECE_BYTES):
            lines += piece.count(b"\n")
            size += len(piece)
            digest.update(piece)
    return lines, size, digest.hexdigest()
