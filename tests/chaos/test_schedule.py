"""The plan of a chaos run: a function of the seed, within its bounds, narrowed without moving."""

from __future__ import annotations

import itertools

import pytest

from chaos.options import parse
from chaos.schedule import GROUPS, KINDS, POSTGRES, Fault, gaps, plan

HALF_AN_HOUR = 1800.0


def of_kind(faults: list[Fault], kind: str) -> list[Fault]:
    return [fault for fault in faults if fault.kind == kind]


def test_the_same_seed_makes_the_same_plan() -> None:
    assert plan(7, HALF_AN_HOUR) == plan(7, HALF_AN_HOUR)
    assert plan(7, HALF_AN_HOUR) != plan(8, HALF_AN_HOUR)


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short = plan(7, 300)
    assert plan(7, HALF_AN_HOUR)[: len(short)] == short


@pytest.mark.parametrize("kind", KINDS)
def test_faults_of_a_kind_are_as_far_apart_as_they_should_be(kind: str) -> None:
    least, most = gaps(kind)
    times = [0.0, *(fault.at for fault in of_kind(plan(3, HALF_AN_HOUR), kind))]
    apart = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(apart) >= HALF_AN_HOUR / most - 1
    assert all(least <= gap <= most for gap in apart)


def test_processes_are_killed_every_2_to_20_s_and_postgresql_every_5_to_40_s() -> None:
    assert gaps("kill-server") == gaps("kill-worker") == (2, 20)
    assert gaps("kill-postgres") == (5, 40)


@pytest.mark.parametrize("kind", KINDS)
def test_leaving_kinds_out_moves_none_of_the_others(kind: str) -> None:
    whole = plan(5, HALF_AN_HOUR)
    assert plan(5, HALF_AN_HOUR, only=[kind]) == of_kind(whole, kind)


def test_everybody_is_struck_and_pauses_come_short_and_beyond_the_lease() -> None:
    faults = plan(1, HALF_AN_HOUR)
    assert {fault.target for fault in faults} == {
        *("server-1", "server-2", "worker-1", "worker-2", "worker-3"),
        POSTGRES,
    }
    pauses = of_kind(faults, "pause")
    beyond = {fault.target[:6] for fault in pauses if fault.seconds >= 8}
    assert beyond == {"server", "worker"}
    assert any(fault.seconds <= 3 for fault in pauses)
    assert all((fault.seconds >= 8) == fault.detail["beyond_lease"] for fault in pauses)
    assert any(fault.seconds > 6 for fault in of_kind(faults, "kill-postgres"))


def test_only_servers_have_wires_to_clients() -> None:
    faults = [fault for fault in plan(2, HALF_AN_HOUR) if fault.detail.get("wire") == "client"]
    assert faults
    assert all(fault.target.startswith("server-") for fault in faults)


def test_a_group_names_its_kinds_and_every_kind_is_in_one() -> None:
    assert parse(["--only", "kills,pause"]).only == (*GROUPS["kills"], "pause")
    assert {kind for kinds in GROUPS.values() for kind in kinds} == set(KINDS)


def test_a_kind_or_a_surface_that_there_is_not_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments in (["--only", "floods"], ["--surfaces", "fax"], ["--minutes", "0"]):
        with pytest.raises(SystemExit):
            parse(arguments)
    assert "floods is not one of kill-server" in capsys.readouterr().err
