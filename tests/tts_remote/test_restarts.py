"""Jobs are on disk: what was accepted is spoken, whatever happens to the process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psutil
import pytest

from examples.tts_remote import Fault, JobFolders, TtsRemote
from examples.tts_remote.job_folders import InUse
from tests.markdown import REPOSITORY
from tests.tts_remote.asking import LONG, Asking, seconds_of
from tests.waiting import eventually_async


async def test_a_token_has_the_same_job_and_result_after_a_restart(tmp_path: Path) -> None:
    async with TtsRemote(tmp_path) as remote, Asking(remote.url) as asking:
        job_id = await asking.submit(token="one")
        ended = await asking.ended(job_id)
        speech = (await asking.result(job_id)).content
    async with TtsRemote(tmp_path) as remote, Asking(remote.url) as asking:
        assert await asking.submit(token="one") == job_id
        assert await asking.status(job_id) == ended
        assert (await asking.result(job_id)).content == speech
        assert (remote.seen.jobs_made, remote.seen.jobs_begun) == (0, 0)


async def test_it_goes_away_and_comes_back_on_its_port_and_goes_on(
    remote: TtsRemote, asking: Asking
) -> None:
    url = remote.url
    remote.plan(Fault("stuck_job"))
    job_id = await asking.submit(token="one")
    await remote.go_away()
    with pytest.raises(httpx2.ConnectError):
        await asking.status(job_id)
    await remote.come_back()
    assert remote.url == url
    assert await asking.submit(token="one") == job_id
    assert (await asking.ended(job_id))["status"] == "completed"
    assert remote.jobs.all() == [job_id]


async def test_two_remotes_do_not_share_a_folder(remote: TtsRemote, tmp_path: Path) -> None:
    with pytest.raises(InUse, match="another remote uses"):
        async with TtsRemote(tmp_path / "jobs"):
            pass


async def test_what_was_half_made_is_removed_and_is_no_job(tmp_path: Path) -> None:
    half = tmp_path / "making-0123"
    half.mkdir()
    (half / "order.json").write_bytes(b'{"text": "One')
    async with TtsRemote(tmp_path) as remote:
        assert not half.exists()
        assert remote.jobs.all() == []


@pytest.mark.crash
async def test_a_job_killed_in_mid_speech_is_spoken_whole_after_the_restart(
    tmp_path: Path,
) -> None:
    folders = JobFolders(tmp_path)
    with program(tmp_path) as (process, url):
        async with Asking(url) as asking:
            job_id = await asking.submit(LONG, token="one")

            async def speaks() -> bool:
                draft = folders.draft(job_id)
                return draft.exists() and draft.stat().st_size > 100_000

            await eventually_async(speaks, "it speaks")
            (voice,) = psutil.Process(process.pid).children()
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert folders.end(job_id) is None

    async def silent() -> bool:
        return not voice.is_running() or voice.status() == psutil.STATUS_ZOMBIE

    await eventually_async(silent, "its voice has fallen silent")
    cut_off_bytes = folders.draft(job_id).stat().st_size
    with program(tmp_path) as (_, url):
        async with Asking(url) as asking:
            assert await asking.submit(LONG, token="one") == job_id
            ended = await asking.ended(job_id)
            speech = (await asking.result(job_id)).content
    assert len(speech) > cut_off_bytes
    assert ended["duration_seconds"] == pytest.approx(seconds_of(speech), abs=0.001)
    async with TtsRemote(tmp_path / "undisturbed") as remote, Asking(remote.url) as asking:
        assert await asking.speech(LONG) == speech


@contextmanager
def program(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The remote as a process of its own, and its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.tts_remote", "--port", "0", "--folder", str(folder)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().split()[-1]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
