"""A remote that calls back is looked at at once; nobody else's word counts."""

from __future__ import annotations

from coatcheck.core.remote.context import CALLBACKS_PATH
from coatcheck.domain.states import State
from tests.db.rows import connected, recorded
from tests.remote_calls.render_deployment import SOUND, RenderDeployment
from tests.remotes.fake_http import FakeHttp


async def spawned(deployment: RenderDeployment, remote: FakeHttp) -> tuple[str, str, str]:
    """The job, the remote's id, and the callback that the remote was given."""
    job_id = await deployment.submit()
    remote_id = (await deployment.parked(job_id)).execution_id
    assert remote_id is not None
    url = remote.works[remote_id].callback_url
    assert url is not None
    assert url.startswith(f"https://coats.example{CALLBACKS_PATH}")
    return job_id, remote_id, url.rpartition("/")[2]


async def test_a_callback_has_its_job_looked_at(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id, remote_id, callback = await spawned(deployment, remote)
    remote.complete(remote_id, SOUND)
    assert await deployment.calls.called_back(callback, b"whatever it says")
    assert (await deployment.ended(job_id)).state is State.COMPLETED


async def test_a_callback_that_says_done_is_not_believed(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id, _, callback = await spawned(deployment, remote)
    assert await deployment.calls.called_back(callback, b'{"status": "completed", "output": "x"}')
    async with connected(deployment.dsn) as sql:
        polls = "SELECT polls FROM remote_calls WHERE looker IS NULL"
        while not await sql.fetchval(polls):
            pass
    assert (await deployment.engine.get(job_id)).state is State.PROCESSING


async def test_nobody_else_can_make_one(deployment: RenderDeployment, remote: FakeHttp) -> None:
    await deployment.start_render_worker(polling=False)
    _, _, callback = await spawned(deployment, remote)
    flipped = "B" if callback[0] == "A" else "A"
    for forged in (flipped + callback[1:], callback[:-4], "", "....", "ü", "A" * 2_000):
        assert not await deployment.calls.called_back(forged, b"{}")


async def test_an_id_that_was_lost_is_learnt_from_a_callback(
    deployment: RenderDeployment, remote: FakeHttp
) -> None:
    await deployment.start_render_worker(polling=False)
    job_id, remote_id, callback = await spawned(deployment, remote)
    async with connected(deployment.dsn) as sql:
        await sql.execute(
            "UPDATE remote_calls SET remote_id = NULL, lease = NULL, due_at = NULL, looker = NULL"
        )
        assert await deployment.calls.called_back(callback, f'{{"id": "{remote_id}"}}'.encode())
        spawns = len(remote.calls)
        await sql.execute(
            recorded(
                "UPDATE jobs SET state = 'queued', lease = NULL, crashes = 1, execution_id = NULL"
            )
        )
    assert (await deployment.parked(job_id)).execution_id == remote_id
    assert not any(call.path.endswith("submit-job") for call in remote.calls[spawns:])
