"""``make audit``: what is shipped has a licence that lets it be."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def audit(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "audit", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_package_that_is_shipped_is_listed_and_may_be() -> None:
    ran = audit()
    assert ran.returncode == 0, ran.stdout
    pinned = {
        pin
        for lock in ("runtime.txt", "codegraph.txt")
        for pin in re.findall(
            r"^([^\s=]+)==([^\s;]+)", (ROOT / "requirements" / lock).read_text(), re.MULTILINE
        )
    }
    listed = [tuple(line.split()[:2]) for line in ran.stdout.splitlines() if line.startswith("  ")]
    assert sorted(listed) == sorted(pinned), "the TypeScript client depends on nothing"
    assert "certifi" in ran.stdout.partition("weak copyleft")[0]


def test_a_licence_that_is_not_in_the_list_fails(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(f"docutils=={metadata.version('docutils')} \\\n    --hash=sha256:00\n")
    ran = audit("--lock", str(lock))
    assert ran.returncode == 1
    assert "error: docutils" in ran.stdout
    assert "GNU General Public License (GPL)' may not be shipped" in ran.stdout


def test_what_is_not_shipped_is_listed_and_not_judged() -> None:
    ran = audit("--all")
    assert ran.returncode == 0, ran.stdout
    assert "Not shipped: requirements/dev.txt" in ran.stdout
    assert "Not shipped: tests/browser/package-lock.json" in ran.stdout
