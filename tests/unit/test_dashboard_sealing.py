"""What a browser keeps for the dashboard is opened by our servers only, and for its purpose."""

from __future__ import annotations

from coatcheck.dashboard.session import Seal

PEPPER = "a pepper that is only ever used in tests"


def test_every_server_of_a_deployment_opens_what_another_has_sealed() -> None:
    sealed = Seal(PEPPER).close("session", b"secret")
    assert "secret" not in sealed
    assert Seal(PEPPER).open("session", sealed) == b"secret"


def test_the_same_is_never_sealed_alike_twice() -> None:
    seal = Seal(PEPPER)
    assert seal.close("session", b"secret") != seal.close("session", b"secret")


def test_another_deployment_another_purpose_and_any_change_open_nothing() -> None:
    seal = Seal(PEPPER)
    sealed = seal.close("session", b"secret")
    assert Seal(PEPPER + "!").open("session", sealed) is None
    assert seal.open("notice", sealed) is None
    for at in range(len(sealed) - 1):
        changed = sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 :]
        assert seal.open("session", changed) is None
    for nonsense in ("", "A", "AAAA", "not base64!", "ä" * 40):
        assert seal.open("session", nonsense) is None


def test_a_token_is_one_sessions() -> None:
    seal = Seal(PEPPER)
    assert seal.is_token(b"one", seal.token(b"one"))
    assert not seal.is_token(b"two", seal.token(b"one"))
    assert not seal.is_token(b"one", None)
    assert not seal.is_token(b"one", "ä")
    assert not Seal(PEPPER + "!").is_token(b"one", seal.token(b"one"))
