"""Every bound that is declared as counted is counted somewhere, and no two have one name."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from coatcheck.domain.bounds import BOUNDS, Bound, share
from coatcheck.http import upload_limits  # noqa: F401 - which declares one
from tests.markdown import REPOSITORY


def test_every_counted_bound_is_counted_by_the_code_that_enforces_it() -> None:
    declared: set[str] = set()
    used: Counter[str] = Counter()
    for path in (REPOSITORY / "src" / "coatcheck").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.AnnAssign(
                    target=ast.Name(id=name), value=ast.Call(func=ast.Name(id="CountedBound"))
                ):
                    declared.add(name)
                case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                    used[name] += 1
    assert len(declared) > 15
    assert {name for name in declared if not used[name]} == set()


def test_two_bounds_cannot_have_one_name() -> None:
    declared = next(iter(BOUNDS))
    with pytest.raises(ValueError, match=f"two bounds are called {declared}"):
        Bound(declared, of="", over="server", response="")


@pytest.mark.parametrize("processes", range(1, 65))
def test_the_processes_of_a_server_have_no_more_than_the_server(processes: int) -> None:
    assert processes * share(500, processes) <= 500
    assert share(3, processes) == max(1, 3 // processes)
    assert share(256, processes, least=128) == max(128, 256 // processes)
    assert share(0, processes) == 0, "no limit"
