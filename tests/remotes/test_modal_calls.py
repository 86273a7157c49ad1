"""What Modal's client raises can be the function's error or the connection's: which, is told."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from coatcheck.egress import Guard
from coatcheck.remotes import (
    Remote,
    RemoteFailed,
    RemoteFaulty,
    RemoteMisdefined,
    RemoteRunning,
    Remotes,
    RemoteUnclear,
    RemoteUnknown,
    RemoteUnreachable,
    SpawnRequest,
)
from coatcheck.remotes.caller import RemoteTimeouts
from tests.remotes.fake_modal import FakeModal
from tests.remotes.fake_service import SECRETS, TOKEN_ID, FakeService
from tests.remotes.faults import Cut

WORK = SpawnRequest("t" * 64, b'{"text": "hello"}')


@pytest.fixture
async def modal(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeModal]:
    async with FakeModal.running() as fake:
        monkeypatch.setitem(sys.modules, "modal", fake.module)
        monkeypatch.setitem(sys.modules, "modal.exception", fake.module.exception)
        yield fake


@pytest.fixture
def remote(modal: FakeModal, remotes: Remotes) -> Remote:
    return modal.opened(remotes)


@pytest.mark.parametrize(
    "raised",
    [
        TimeoutError(),
        TimeoutError("slow"),
        ConnectionResetError("gone"),
        KeyError("voice"),
        SystemExit(3),
    ],
)
async def test_a_function_that_raised_has_failed_whatever_it_raised(
    modal: FakeModal, remote: Remote, raised: BaseException
) -> None:
    remote_id = await remote.spawn(WORK)
    modal.raised[remote_id] = raised

    status = (await remote.status([remote_id]))[remote_id]

    assert isinstance(status, RemoteFailed)
    assert type(raised).__name__ in status.message


async def test_a_connection_that_is_lost_while_polling_is_no_failure_of_the_function(
    modal: FakeModal, remote: Remote
) -> None:
    remote_id = await remote.spawn(WORK)
    modal.faults.append(Cut())

    status = (await remote.status([remote_id]))[remote_id]

    assert isinstance(status, RemoteUnclear)
    assert isinstance(status.error, RemoteFaulty)
    assert await remote.status([remote_id]) == {remote_id: RemoteRunning()}


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("FunctionTimeoutError", RemoteFailed, "remote_timed_out"),
        ("RemoteError", RemoteFailed, "remote_failed"),
        ("ExecutionError", RemoteFailed, "remote_failed"),
        ("InternalFailure", RemoteFailed, "remote_failed"),
        ("OutputExpiredError", RemoteUnknown, None),
    ],
)
async def test_modals_own_errors_mean_what_they_say(
    modal: FakeModal, remote: Remote, name: str, kind: type, code: str | None
) -> None:
    remote_id = await remote.spawn(WORK)
    modal.raised[remote_id] = getattr(modal.module.exception, name)("because")

    status: Any = (await remote.status([remote_id]))[remote_id]

    assert type(status) is kind
    assert getattr(status, "code", None) == code


@pytest.mark.parametrize(
    ("returned", "media_type", "content"),
    [
        (b"RIFFbytes", "application/octet-stream", b"RIFFbytes"),
        ({"seconds": 3}, "application/json", b'{"seconds":3}'),
        (None, "application/json", b"null"),
    ],
)
async def test_what_a_function_returns_is_the_result(
    modal: FakeModal, remote: Remote, returned: Any, media_type: str, content: bytes
) -> None:
    remote_id = await remote.spawn(WORK)
    modal.works[remote_id].state = "completed"
    modal.returned[remote_id] = returned

    async with await remote.result(remote_id) as result:
        assert result.media_type == media_type
        assert b"".join([piece async for piece in result]) == content


async def test_modal_is_logged_in_to_once_with_the_targets_token(
    modal: FakeModal, remote: Remote
) -> None:
    await remote.status([await remote.spawn(WORK), await remote.spawn(WORK)])

    assert modal.logins == [(TOKEN_ID, FakeService.secret)]


async def test_modals_client_takes_its_own_credentials_where_the_target_names_none(
    modal: FakeModal, remotes: Remotes
) -> None:
    definition = modal.definition()
    del definition["token_id_secret"], definition["token_secret_secret"]

    await modal.opened(remotes, definition).spawn(WORK)

    assert modal.logins == [("from", "env")]


async def test_only_the_operator_may_name_functions_whose_results_are_unpickled(
    modal: FakeModal, remotes: Remotes
) -> None:
    with pytest.raises(RemoteMisdefined, match="operator"):
        remotes.open(modal.definition(), secret=SECRETS.get)


async def test_modal_that_lets_nobody_log_in_in_time_is_unreachable(modal: FakeModal) -> None:
    modal.hangs_at_login = True
    async with Remotes(Guard(), timeouts=RemoteTimeouts(call_seconds=0.4)) as impatient:
        with pytest.raises(RemoteUnreachable) as caught:
            await modal.opened(impatient).spawn(WORK)

    assert not caught.value.perhaps_done


async def test_input_that_is_no_object_is_the_functions_one_argument(
    modal: FakeModal, remote: Remote
) -> None:
    remote_id = await remote.spawn(SpawnRequest("t" * 64, b'"hello"'))

    assert modal.sent_input(remote_id) == "hello"


async def test_modal_that_is_away_while_polling_leaves_all_of_them_unclear(
    modal: FakeModal, remote: Remote
) -> None:
    ids = [await remote.spawn(WORK), await remote.spawn(WORK)]
    modal.is_away = True

    for status in (await remote.status(ids)).values():
        assert isinstance(status, RemoteUnclear)
        assert isinstance(status.error, RemoteUnreachable)
