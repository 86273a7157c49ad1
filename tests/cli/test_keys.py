"""Keys over the public API, and the organisation that a key is of."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from coatcheck.cli.app import app
from coatcheck.domain.tenants import USER_SCOPES
from tests.cli.conftest import Live
from tests.waiting import eventually


def listed(live: Live, *arguments: str, **variables: str) -> dict[str, dict[str, Any]]:
    ran = live.run("keys", "list", "--json", *arguments, **variables)
    keys = [json.loads(line) for line in ran.stdout.splitlines()]
    return {key["id"]: key for key in keys}


def test_a_key_is_made_shown_and_revoked_over_the_api(live: Live) -> None:
    made = live.shown(
        *("keys", "create", "--user", "ada", "--name", "importer", "--rate", "100/60"),
        *("--scope", "read", "--scope", "submit", "--expires", "30d", "--json"),
    )
    assert (made["user"], made["scopes"], made["org_id"]) == ("ada", ["read", "submit"], "default")
    key = made.pop("key")
    assert listed(live)[made["id"]] == made
    ran = live.run("keys", "list")
    assert made["id"] in ran.stdout
    assert "100/60" in ran.stdout
    assert key.split("_")[2] not in ran.stdout
    live.run("jobs", COATCHECK_API_KEY=key)
    live.run("keys", "list", exit_code=2, COATCHECK_API_KEY=key)
    assert live.shown("keys", "revoke", key, "--json") == {"id": made["id"], "revoked": True}
    using = live.variables | {"COATCHECK_API_KEY": key}
    eventually(lambda: CliRunner().invoke(app, ["jobs"], env=using).exit_code == 2, "it is refused")
    assert listed(live)[made["id"]]["revoked_at"] is not None

    mine = live.run("keys", "create").stdout.strip()
    assert listed(live)[mine.split("_")[1]]["user"] == "dev", "whose key has made it"
    unknown = live.run("keys", "revoke", "01ARZ3NDEKTSV4RRFFQ69G5FAV", exit_code=1)
    assert "key not found" in unknown.stderr


def test_without_another_it_is_the_organisation_of_the_key(live: Live) -> None:
    assert live.deployment is not None
    live.do(live.deployment.create_org("acme"))
    theirs = live.do(live.deployment.create_key("acme"))
    key_id = theirs.split("_")[1]
    assert set(listed(live, COATCHECK_API_KEY=theirs)) == {key_id}
    assert live.run("top", "--json", COATCHECK_API_KEY=theirs).stdout.startswith('{"org_id":"acme"')
    live.run("jobs", "--org", "default", exit_code=2, COATCHECK_API_KEY=theirs)
    assert set(listed(live, "--org", "acme")) == {key_id}, "who operates may name any"
    user = live.do(live.deployment.create_key("acme", scopes=USER_SCOPES))
    live.run("jobs", COATCHECK_API_KEY=user)
