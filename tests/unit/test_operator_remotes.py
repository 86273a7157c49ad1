"""COATCHECK_REMOTES: the operator's own remotes, by name."""

from __future__ import annotations

import json
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from coatcheck import Settings
from coatcheck.domain.errors import SettingsInvalid
from coatcheck.domain.remote_work import OperatorRemote
from coatcheck.settings.parsers import SettingRefused
from coatcheck.settings.settings import parse_remotes
from tests.all_products import operators

SPEAKER = {"adapter": "http", "url": "http://tts.local", "secret": "key"}
NOWHERE = "postgresql://nowhere"
FUNCTION = {"app": "a", "function": "f"}


def test_each_remote_has_a_name_a_target_and_its_secrets() -> None:
    written = {
        "speaker": {"target": SPEAKER, "secrets": {"key": "hush"}},
        "gpu-1": {"target": {"adapter": "modal", **FUNCTION}},
    }
    assert parse_remotes(json.dumps(written)) == {
        "speaker": OperatorRemote(target={"kind": "remote", **SPEAKER}, secrets={"key": "hush"}),
        "gpu-1": OperatorRemote(target={"kind": "remote", "adapter": "modal", **FUNCTION}),
    }


def test_there_may_be_none() -> None:
    assert parse_remotes("") == parse_remotes("{}") == {}


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ([SPEAKER], "array"),
        ({"two words": {"target": SPEAKER}}, "two words"),
        ({"": {"target": SPEAKER}}, "not a valid remote name"),
        ({"speaker": None}, "speaker"),
        ({"speaker": SPEAKER}, "speaker"),
        ({"speaker": {"target": {"url": "http://tts.local"}}}, "speaker: its target"),
        ({"speaker": {"target": SPEAKER, "secrets": {"key": "hush hush"}}}, "speaker: its secret"),
    ],
)
def test_what_is_wrong_is_said_without_a_secret(written: Any, reason: str) -> None:
    with pytest.raises(SettingRefused, match=reason) as refused:
        parse_remotes(json.dumps(written))
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ({"adapter": "abacus"}, "abacus.*use one of http, modal, replicate, runpod, fal"),
        ({"adapter": "http"}, "url"),
        (SPEAKER, "the secret 'key' is missing"),
    ],
)
def test_what_no_adapter_can_use_is_refused_at_the_start(target: Any, reason: str) -> None:
    remotes = parse_remotes(json.dumps({"speaker": {"target": target}}))
    with pytest.raises(SettingsInvalid, match=f"COATCHECK_REMOTES: speaker: .*{reason}"):
        operators(Settings(database_url=NOWHERE, remotes=remotes))


def test_a_function_on_modal_needs_its_package_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remotes = parse_remotes(json.dumps({"gpu": {"target": {"adapter": "modal", **FUNCTION}}}))
    settings = Settings(database_url=NOWHERE, remotes=remotes)
    monkeypatch.setitem(sys.modules, "modal", None)
    with pytest.raises(SettingsInvalid, match=r"COATCHECK_REMOTES: gpu: .*pip install modal"):
        operators(settings)
    installed = ModuleType("modal")
    installed.__spec__ = ModuleSpec("modal", None)
    monkeypatch.setitem(sys.modules, "modal", installed)
    assert operators(settings) == {"remotes.gpu": remotes["gpu"]}


def test_jobs_ask_for_a_remote_by_a_name_of_its_own() -> None:
    remotes = parse_remotes(json.dumps({"speech": {"target": SPEAKER, "secrets": {"key": "hush"}}}))
    assert operators(Settings(database_url=NOWHERE, remotes=remotes)) == {
        "remotes.speech": remotes["speech"]
    }
