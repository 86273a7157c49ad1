"""What the crash sweep says of itself: a point that was not struck, or did not hold, shows."""

from __future__ import annotations

import json
from pathlib import Path

from chaos.sweep.passes import Struck, _outcomes, _struck
from chaos.sweep.table import cell, is_whole, markdown
from coatcheck.crash import CRASH_POINTS

CLAIM = "claim.updated_not_committed"


def all_passed() -> list[Struck]:
    return [Struck(point, "worker", f"t::x[{point}]", "passed") for point in CRASH_POINTS]


def test_a_sweep_is_whole_if_every_point_was_struck_and_held() -> None:
    assert is_whole({"process": all_passed()})
    assert "| `claim.updated_not_committed` | passed 1 (worker) |" in markdown(
        {"process": all_passed()}
    )


def test_a_point_that_was_not_struck_is_a_failure() -> None:
    struck = [each for each in all_passed() if each.point != CLAIM]
    assert cell(CLAIM, "postgresql", struck) == "NOT STRUCK"
    assert not is_whole({"postgresql": struck})


def test_one_failure_among_several_scenarios_of_a_point_shows() -> None:
    failed = Struck(CLAIM, "worker", "t::y", "failed", "AssertionError: two ends\nmore")
    struck = [*all_passed(), failed]
    assert cell(CLAIM, "pause", struck) == "FAILED (1 of 2)"
    assert not is_whole({"pause": struck})
    assert "- `t::y`: AssertionError: two ends" in markdown({"pause": struck})


def test_a_test_that_broke_before_it_came_to_a_point_is_a_failure() -> None:
    broken = Struck("", "", "t::collection", "failed", "ImportError: no module")
    assert not is_whole({"process": [*all_passed(), broken]})


def test_a_point_of_upkeep_that_a_command_s_upkeep_did_not_pass_is_a_failure() -> None:
    struck = [each for each in all_passed() if each.point != "rescue.updated_not_committed"]
    assert is_whole({"server": all_passed()})
    assert not is_whole({"server": struck})


def test_who_was_struck_and_why_somebody_was_not_is_said() -> None:
    struck = [
        Struck("input.marked", "upkeep", "t::a", "passed"),
        Struck("input.marked", "deliver", "t::b", "passed"),
        Struck("llm.stream_sent", "", "t::c", "skipped", "holds no lease"),
    ]
    assert cell("input.marked", "pause", struck) == "passed 2 (maintenance, server)"
    assert cell("llm.stream_sent", "pause", struck) == "holds no lease"
    assert cell("llm.claimed", "server", []) == "not a point of maintenance"


def test_strikes_are_told_apart_by_how_their_test_ended(tmp_path: Path) -> None:
    report, journal = tmp_path / "report.xml", tmp_path / "journal"
    report.write_text(
        """<testsuites><testsuite>
        <testcase classname="tests.e2e.test_x" name="test_a[llm.claimed]"/>
        <testcase classname="tests.e2e.test_x" name="test_a[llm.answered]">
            <error message="late"/></testcase>
        <testcase classname="tests.e2e.test_x" name="test_a[input.marked-upkeep]">
            <failure message="never came to its point"/></testcase>
        </testsuite></testsuites>"""
    )
    journal.write_text(
        "".join(
            json.dumps({"point": point, "role": "llm_worker", "test": test}) + "\n"
            for point, test in [
                ("llm.claimed", "tests.e2e.test_x::test_a[llm.claimed]"),
                ("llm.answered", "tests.e2e.test_x::test_a[llm.answered]"),
            ]
        )
    )
    outcomes = {each.point: each.outcome for each in _struck(journal, _outcomes(report))}
    assert outcomes == {"llm.claimed": "passed", "llm.answered": "failed", "input.marked": "failed"}
