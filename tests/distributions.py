"""Python distributions that a test writes: a folder that stands on the path of a process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from coatcheck import installed

PRODUCTS = "coatcheck.products"
SERVICES = "coatcheck.services"


def write_distribution(
    folder: Path,
    name: str,
    *,
    modules: Mapping[str, str] | None = None,
    entry_points: Mapping[str, Mapping[str, str]] | None = None,
) -> Path:
    """Write what an installer would: ``modules`` by file name, and the distribution's metadata."""
    for file_name, source in (modules or {}).items():
        (folder / file_name).write_text(source)
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, points in (entry_points or {}).items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items()), ""]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    return folder


@contextmanager
def installed_here(folder: Path) -> Iterator[None]:
    """Have this process find the distributions of a folder, as if they were installed."""
    modules = set(sys.modules)
    sys.path.append(str(folder))
    installed.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        installed.invalidate_caches()
        for name in set(sys.modules) - modules:
            if (sys.modules[name].__file__ or "").startswith(str(folder)):
                del sys.modules[name]
