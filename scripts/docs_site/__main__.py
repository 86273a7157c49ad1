"""Build the site.

.venv/bin/python -m scripts.docs_site [FOLDER]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx

from scripts.docs_site import api_pages, sources
from scripts.docs_site.repository import REPOSITORY

HERE = Path(__file__).resolve().parent


def build(target: Path, *, builder: str = "dirhtml") -> int:
    """Write the site into ``target``; a warning of Sphinx is an error.

    With the builder ``dummy`` everything is checked and nothing is written.
    """
    with tempfile.TemporaryDirectory(prefix="coatcheck-docs-") as scratch:
        source, doctrees = Path(scratch) / "source", Path(scratch) / "doctrees"
        tags = api_pages.write(source)
        sources.write(source, tags)
        app = Sphinx(
            srcdir=source,
            confdir=HERE,
            outdir=target,
            doctreedir=doctrees,
            buildername=builder,
            freshenv=True,
            warningiserror=True,
            status=None,
            parallel=1,
        )
        app.build(force_all=True)
        return int(app.statuscode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = REPOSITORY / "build" / "docs"
    parser.add_argument("folder", nargs="?", type=Path, default=default)
    target = parser.parse_args().folder
    status = build(target)
    if status == 0:
        # Pages are folders, which a browser opens only over HTTP.
        sys.stdout.write(
            f"The site is in {target}. To read it: python3 -m http.server --directory {target}\n"
        )
    raise SystemExit(status)


if __name__ == "__main__":
    main()
