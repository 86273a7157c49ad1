"""Every command that shows something can show it to a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coatcheck.cli.app import COMMANDS, app
from coatcheck.receipts.signature import Signer
from tests.unit.receipt_samples import PEPPER, signed

EXCEPTIONS = {
    "up": "runs until it is stopped, and says what it does to people",
    "serve": "runs until it is stopped; its log is JSON with COATCHECK_LOG_FORMAT",
    "worker": "runs until it is stopped; its log is JSON with COATCHECK_LOG_FORMAT",
    "listen": "runs until it is stopped; `webhooks deliveries --json` has what was sent",
    "completion": "prints a program for a shell",
}
DEPLOYMENT = {
    "COATCHECK_KEY_PEPPER": PEPPER,
    "COATCHECK_DATABASE_URL": "postgresql://127.0.0.1:1/none",
    "COATCHECK_JWT_SECRET": "a secret that is only ever used in tests",
    "COATCHECK_JWT_ISSUER": "tests",
    "COATCHECK_JWT_AUDIENCE": "coatcheck",
}


def options() -> dict[str, set[str]]:
    """Of every command, and of those of groups."""
    found: dict[str, set[str]] = {}
    for command in COMMANDS:
        loaded = command.load()
        below = getattr(loaded, "commands", None) or {"": loaded}
        for name, each in below.items():
            taken = {option for parameter in each.params for option in parameter.opts}
            found[f"{command.name} {name}".strip()] = taken
    return found


def test_every_command_prints_json_if_asked_to_but_for_those_that_show_nothing() -> None:
    without = {name for name, taken in options().items() if "--json" not in taken}
    assert without == set(EXCEPTIONS)


def shown(*arguments: str, exit_code: int = 0) -> list[dict[str, object]]:
    ran = CliRunner().invoke(app, [*arguments, "--json"], env=DEPLOYMENT)
    assert ran.exit_code == exit_code, ran.output
    # Not splitlines: it also ends a line at what may stand in a JSON string.
    return [json.loads(line) for line in ran.stdout.split("\n")[:-1]]


def test_a_token_and_the_receipts_and_their_key_are_shown_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (token,) = shown("token", "--user", "ada", "--org", "acme")
    assert (token["user"], token["org_id"], str(token["token"]).count(".")) == ("ada", "acme", 2)
    (key,) = shown("receipt", "key")
    assert key == Signer.from_pepper(PEPPER).public_key.jwk
    Path("key.json").write_text(json.dumps(key))
    for complete, exit_code in ((True, 0), (False, 3)):
        Path("receipt.json").write_bytes(signed(complete=complete))
        arguments = ("receipt", "verify", "receipt.json", "--key", "key.json")
        (receipt,) = shown(*arguments, exit_code=exit_code)
        assert receipt["complete"] is complete
    Path("receipt.json").write_bytes(b"{}")
    assert shown(*arguments, exit_code=1) == []


def test_a_folder_without_a_secret_is_named_and_not_asked_for(data_root: Path) -> None:
    arguments = ["token", "--user", "ada", "--data", str(data_root / "empty")]
    ran = CliRunner().invoke(app, arguments, env={"COATCHECK_DATABASE_URL": ""})
    assert ran.exit_code == 2
    assert "empty has no jwt-secret: `coatcheck up` has not run on it" in ran.stderr
    assert "Name its data folder with --data" not in ran.stderr


def test_what_a_doctor_finds_is_a_line_of_json_each() -> None:
    findings = {finding["subject"]: finding for finding in shown("doctor", exit_code=1)}
    assert findings["versions"]["verdict"] == "ok"
    assert findings["database"]["verdict"] == "fail"
    assert findings["database"]["hint"]
