"""The API key that `coatcheck up` makes, from the first start to the first answered request."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from coatcheck.domain import tenants
from tests.e2e.conftest import COMMAND, Up, coatcheck, environment
from tests.markdown import pages
from tests.waiting import LIMIT_SECONDS

StartUp = Callable[..., Up]
KEYS = "/api/v1/orgs/default/api-keys"


def ask(up: Up, key: str, path: str = KEYS) -> httpx2.Response:
    """Something that only an admin of the organisation `default` may."""
    return httpx2.get(
        f"http://127.0.0.1:{up.port}{path}",
        headers={"Authorization": f"Bearer {key}"},
        trust_env=False,
    )


@pytest.mark.slow
def test_the_first_start_makes_a_key_and_the_curl_command_beside_it_works(
    start_up: StartUp,
) -> None:
    up = start_up(from_nothing=True)
    up.wait_until_ready()
    file = up.data / "dev-key"
    key = file.read_text().strip()
    assert key not in up.said(), "it is written to a file here, which others may read"
    assert f"in {file}  (to show it: cat {file})" in up.said()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.stat().st_uid == os.geteuid()

    command = re.search(r"^  (curl -s -H .*)$", up.said(), re.MULTILINE)
    assert command is not None
    tried = subprocess.run(
        ["sh", "-c", command[1]], capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert tried.returncode == 0, tried.stderr
    answered = json.loads(tried.stdout)
    assert (answered["status"], answered["terminal"]) == ("completed", True)
    # On another port than commands look at by themselves, it says what to set.
    assert f"\n  export COATCHECK_URL=http://127.0.0.1:{up.port}\n" in up.said()

    assert ask(up, key).status_code == 200
    operated = ask(up, key, "/api/v1/operator/orgs")
    assert operated.status_code == 200, "who runs `up` operates it"
    made = coatcheck("keys", "create", "--data", str(up.data), "--scope", "admin", cwd=file.parent)
    assert ask(up, made.stdout.strip()).status_code == 200
    assert stat.S_IMODE((up.data / "jwt-secret").stat().st_mode) == 0o600
    ada = coatcheck("token", "--user", "ada", "--data", str(up.data), cwd=file.parent)
    mine = httpx2.get(
        f"http://127.0.0.1:{up.port}/voices",
        headers={"Authorization": f"Bearer {ada.stdout.strip()}"},
        trust_env=False,
    )
    assert (mine.status_code, mine.json()["items"]) == (200, [])
    revoked = coatcheck("keys", "revoke", key, "--data", str(up.data), cwd=file.parent)
    assert revoked.returncode == 0, revoked.stderr
    refused = coatcheck("keys", "list", "--data", str(up.data), cwd=file.parent)
    assert (refused.returncode, f"the server refuses the key in {file}" in refused.stderr) == (
        2,
        True,
    )
    assert up.stop() == 0

    again = start_up(port=up.port)
    again.wait_until_ready()
    assert key not in again.said()
    assert f"revoked; to get a new one, delete {file}" in again.said()
    assert ask(again, key).status_code == 401
    assert ask(again, made.stdout.strip()).status_code == 200


@pytest.mark.slow
def test_a_key_is_shown_once_to_whoever_sits_at_the_terminal(start_up: StartUp) -> None:
    up = start_up(on_terminal=True)
    up.wait_until_ready()
    key = (up.data / "dev-key").read_text().strip()
    assert up.said().count(key) == 1
    assert up.stop() == 0

    again = start_up(on_terminal=True, port=up.port)
    again.wait_until_ready()
    assert key not in again.said()


@pytest.mark.slow
def test_colours_that_are_forced_on_a_file_show_no_key(start_up: StartUp) -> None:
    up = start_up(FORCE_COLOR="1")
    up.wait_until_ready()
    assert (up.data / "dev-key").read_text().strip() not in up.said()


@pytest.mark.slow
def test_every_command_of_the_guide_to_keys_works(start_up: StartUp) -> None:
    up = start_up()
    up.wait_until_ready()
    (guide,) = [page for page in pages("docs/how-to") if page.path.stem == "manage-api-keys"]
    give, see, organise, over_http, pepper = (block.text for block in guide.blocks("sh"))
    script = "\n".join(["set -euo pipefail", give, organise, over_http, see, pepper])
    made = coatcheck("keys", "create", "--data", str(up.data), cwd=up.data.parent)
    to_be_revoked = made.stdout.strip()
    for shown, meant in (
        (".venv/bin/coatcheck", shlex.join(COMMAND)),
        ("http://127.0.0.1:8080", f"http://127.0.0.1:{up.port}"),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", to_be_revoked.split("_")[1]),
        (".coatcheck", str(up.data)),
        ("curl -s ", "curl -s --fail-with-body "),
    ):
        assert shown in script
        script = script.replace(shown, meant)
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=up.data.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ask(up, to_be_revoked).status_code == 401, "the guide's last step revoked it"


@pytest.mark.slow
def test_a_preset_key_is_used_until_another_is_preset(start_up: StartUp) -> None:
    first, second = tenants.mint().text, tenants.mint().text
    up = start_up(COATCHECK_DEV_KEY=first)
    up.wait_until_ready()
    assert ask(up, first).status_code == 200
    if os.geteuid() == 0:  # to others the kernel shows none of it: see the next test
        for name in ("serve", "worker"):
            child = up.child(name)
            assert child is not None
            assert first not in str(child.environ())
        worker = up.child("worker")
        assert worker is not None
        assert "COATCHECK_KEY_PEPPER" not in worker.environ()
    assert up.stop() == 0

    up = start_up(port=up.port, COATCHECK_DEV_KEY=second)
    up.wait_until_ready()
    assert ask(up, second).status_code == 200
    assert ask(up, first).status_code == 401


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
def test_what_runs_as_the_same_user_cannot_read_the_environment_of_any_of_its_processes(
    start_up: StartUp,
) -> None:
    up = start_up()
    up.wait_until_ready()
    children = [up.child("serve"), up.child("worker")]
    pids = [up.process.pid, *(child.pid for child in children if child is not None)]
    assert len(pids) == 3
    look = (
        "import sys; from coatcheck.process_access import give_up_capabilities\n"
        "give_up_capabilities()\n"
        "for pid in sys.argv[1:]:\n"
        "    try: print(open(f'/proc/{pid}/environ').read())\n"
        "    except PermissionError: print('refused')"
    )
    looked = subprocess.run(
        [sys.executable, "-c", look, *map(str, pids)], env=environment(), capture_output=True
    )
    assert looked.stdout.split() == [b"refused"] * 3, looked.stderr


def test_a_preset_key_of_another_form_is_said_before_anything_is_started(data_root: Path) -> None:
    ran = coatcheck(
        *("up", "--data", str(data_root / "data")),
        cwd=data_root,
        COATCHECK_DEV_KEY="my-secret-key",
    )
    assert ran.returncode == 2
    assert "COATCHECK_DEV_KEY is (hidden" in ran.stderr
    assert "cck_ID_SECRET" in ran.stderr
    assert "my-secret-key" not in ran.stderr
    assert not (data_root / "data").exists()
