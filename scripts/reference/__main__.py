"""Write the generated parts of the reference pages. With --check, only compare them.

.venv/bin/python -m scripts.reference [--check]
"""

from __future__ import annotations

import argparse
import sys

from scripts.reference import commands, dialects, failures, http, limits, operations, states
from scripts.reference.parts import Outdated, Parts, regenerated


def parts() -> Parts:
    """What generates each part of each page, by the page's name in docs/reference."""
    return {
        **http.PRODUCT_PARTS,
        "bounds": limits.PARTS,
        "cli": commands.parts(),
        "dialects": dialects.PARTS,
        "errors": http.ERROR_PARTS,
        "failures": failures.PARTS,
        "metrics": operations.METRIC_PARTS,
        "routes": http.ROUTE_PARTS,
        "settings": operations.SETTING_PARTS,
        "states": states.PARTS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if they differ")
    check = parser.parse_args().check
    try:
        pages = regenerated(parts())
    except Outdated as reason:
        sys.exit(str(reason))
    stale = [path for path, text in pages.items() if path.read_text("utf-8") != text]
    if check and stale:
        names = ", ".join(f"docs/reference/{path.name}" for path in stale)
        sys.exit(f"{names}: not what the declarations say. Run `make reference` and commit it")
    for path in stale:
        path.write_text(pages[path], "utf-8")


if __name__ == "__main__":
    main()
