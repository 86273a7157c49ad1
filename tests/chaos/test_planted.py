"""The planted bugs can be planted, their lanes are there, and only a real catch counts as one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from chaos import options
from chaos.planted import table
from chaos.planted.bugs import INVARIANTS, BadHeader, Bug, Lane, planted
from chaos.planted.lanes import Run, read_results
from chaos.planted.table import Row
from chaos.planted.trees import REPOSITORY, DoesNotApply, Tree

BUGS = planted()
PATCH = """\
invariant: C
bug: one is two
lane: test tests/test_one.py
also: chaos --minutes 2

--- a/src/one.py
+++ b/src/one.py
@@ -1 +1 @@
-ONE = 1
+ONE = 2
"""


@pytest.fixture
def patch(tmp_path: Path) -> Path:
    written = tmp_path / "01-one-is-two.patch"
    written.write_text(PATCH)
    return written


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_patch_applies_to_the_product_as_it_is(bug: Bug) -> None:
    checked = subprocess.run(
        ["git", "apply", "--check", bug.patch],
        cwd=REPOSITORY,
        check=False,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr
    changed = re.findall(r"^\+\+\+ b/(.+)$", bug.patch.read_text(), re.MULTILINE)
    assert changed
    assert all(name.startswith("src/coatcheck/") for name in changed)


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_the_lanes_of_a_bug_are_there(bug: Bug) -> None:
    for lane in bug.lanes:
        if lane.name == "chaos":
            options.parse(lane.arguments)
            continue
        assert lane.arguments
        for name in lane.arguments:
            path, _, test = name.partition("::")
            assert (REPOSITORY / path).is_file(), name
            function, _, _ = test.partition("[")
            assert f"def {function}(" in (REPOSITORY / path).read_text(), name


def test_every_invariant_is_broken_by_some_bug() -> None:
    assert {bug.invariant for bug in BUGS} == set(INVARIANTS)
    assert [bug.name[:2] for bug in BUGS] == [f"{number:02}" for number in range(1, len(BUGS) + 1)]


def test_a_header_says_what_is_broken_and_who_has_to_notice(patch: Path) -> None:
    bug = Bug.read(patch)
    assert (bug.name, bug.invariant, bug.text) == ("01-one-is-two", "C", "one is two")
    assert bug.lane(None) == bug.lane("test") == Lane("test", ("tests/test_one.py",))
    assert bug.lane("chaos") == Lane("chaos", ("--minutes", "2"))


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ("bug: one is two\n", ""),
        ("invariant: C", "invariant: M"),
        ("lane: test", "lane: hope"),
        ("also:", "perhaps:"),
    ],
)
def test_a_header_that_does_not_is_refused(patch: Path, said: str, instead: str) -> None:
    patch.write_text(PATCH.replace(said, instead))
    with pytest.raises(BadHeader):
        Bug.read(patch)


def test_a_bug_is_planted_in_the_copy_only(patch: Path, tmp_path: Path) -> None:
    sound = Tree(tmp_path / "sound")
    (sound.folder / "src").mkdir(parents=True)
    (sound.folder / "src" / "one.py").write_text("ONE = 1\n")
    copy = sound.copy(tmp_path / "copy")
    copy.plant(patch)
    assert (copy.folder / "src" / "one.py").read_text() == "ONE = 2\n"
    assert (sound.folder / "src" / "one.py").read_text() == "ONE = 1\n"
    with pytest.raises(DoesNotApply):
        copy.plant(patch)


def test_a_copy_whose_coatcheck_would_not_be_run_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="not from the copy"):
        Tree(tmp_path).check()


FAILED = '<testcase name="test_a"><failure message="assert 1 == 2"/></testcase>'
PASSED = '<testcase name="test_b"/>'
BROKEN = '<testcase name="test_c"><error message="failed on setup"/></testcase>'
SKIPPED = '<testcase name="test_d"><skipped/></testcase>'


@pytest.mark.parametrize(
    ("cases", "output", "caught_by", "is_trouble"),
    [
        (FAILED + PASSED, "assert 1 == 2", ["test_a"], False),
        (FAILED + BROKEN, "assert 1 == 2", ["test_a"], False),
        (FAILED, "asyncpg.exceptions.PostgresSyntaxError: at or near", [], True),
        (FAILED, "ImportError: cannot import name", [], True),
        (BROKEN + PASSED, "", [], True),
        (SKIPPED, "", [], True),
        ("", "", [], True),
        (PASSED, "", [], False),
    ],
)
def test_a_bug_is_caught_by_a_test_that_ran_and_failed_for_a_reason(
    tmp_path: Path, cases: str, output: str, caught_by: list[str], is_trouble: bool
) -> None:
    results, said = tmp_path / "results.xml", tmp_path / "output.txt"
    results.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    said.write_text(output)
    _, caught, trouble = read_results(results, said)
    assert (caught, trouble is not None) == (caught_by, is_trouble)


def test_the_table_says_what_was_caught_by_what_and_what_was_not(
    patch: Path, tmp_path: Path
) -> None:
    bug = Bug.read(patch)
    caught = Row(bug, bug.lanes[0], Run(1.0, caught_by=["test_a", "test_b"]))
    missed = Row(bug, bug.lanes[1], Run(2.0, trouble="not over after 2 s"))
    text = table.write([caught, missed], tmp_path)
    assert "`test_a`<br>`test_b`" in text
    assert "NOT CAUGHT: not over after 2 s" in text
    assert "1 of 2 caught" in text
    assert (tmp_path / "planted.md").read_text() == text
    assert (caught.caught, missed.caught) == (True, False)
