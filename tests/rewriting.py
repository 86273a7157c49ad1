"""The assertions of all test files, rewritten by the workers together instead of by each of them.

pytest rewrites a test file before it imports it, and keeps the result beside the file. In a fresh
clone there is none yet: each worker would rewrite every file, which takes longer than the imports.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _rewrite_test,
    _write_pyc,
    assertstate_key,
    get_cache_dir,
    try_makedirs,
)

TESTS = Path(__file__).parent
PACKAGES = TESTS.parent / "packages"


def rewrite_share(config: pytest.Config, worker: int, workers: int) -> None:
    """Rewrite every ``workers``-th of the files that nobody has rewritten yet."""
    state = config.stash.get(assertstate_key, None)
    if state is None or state.mode != "rewrite" or sys.dont_write_bytecode:
        return
    paths = [*TESTS.rglob("test_*.py"), *PACKAGES.glob("*/tests/**/test_*.py")]
    for path in sorted(paths)[worker::workers]:
        folder = get_cache_dir(path)
        kept = folder / (path.stem + PYC_TAIL)
        if not kept.exists() and try_makedirs(folder):
            source_hash, code = _rewrite_test(path, config)
            _write_pyc(state, code, source_hash, kept)
