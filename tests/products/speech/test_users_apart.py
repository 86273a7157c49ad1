"""Two walls between users: what the surface asks for, and what the database would show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.ids import new_id, to_text
from coatcheck.products.speech.model import GenerationNotFound, SpeechReader, VoiceNotFound
from coatcheck.products.speech.repository import SpeechRepository, sql
from tests.products.speech.speech_deployment import Headers, SpeechDeployment

pytestmark = pytest.mark.asyncio(loop_scope="module")

TABLES = ("voices", "generations", "jobs", "artifacts")


class UserResources:
    """What one user has: a voice, a task that is completed, what it spoke."""

    def __init__(self, headers: Headers, task: dict[str, Any]) -> None:
        self.headers = headers
        self.task: str = task["id"]
        self.generation: str = task["generation_id"]
        self.voice: str = task["metadata"]["voice_id"]
        self.artifact = f"{self.generation}.wav"

    @classmethod
    async def of(cls, speech: SpeechDeployment, user: str, org: str = "default") -> UserResources:
        headers = speech.user(user, org)
        return cls(headers, await speech.ended(await speech.submitted(headers), headers))


def routes(resources: UserResources) -> list[tuple[str, str]]:
    task = f"/tasks/{resources.task}"
    return [
        ("GET", task),
        ("GET", f"{task}/events"),
        ("POST", f"{task}/cancel"),
        ("GET", f"{task}/artifacts"),
        ("GET", f"{task}/artifacts/{resources.artifact}"),
        ("GET", f"{task}/artifacts/{resources.artifact}/receipt"),
        ("GET", f"/generations/{resources.generation}"),
        ("GET", f"/voices/{resources.voice}"),
    ]


def absent(path: str, resources: UserResources) -> str:
    """The same path, with ids that never were."""
    for known in (resources.task, resources.generation, resources.voice):
        path = path.replace(known, to_text(new_id()))
    return path


async def test_another_users_things_are_answered_as_if_they_never_were(
    speech: SpeechDeployment,
) -> None:
    mine = await UserResources.of(speech, "alice")
    strangers = [speech.user("mallory"), speech.user("alice", "other")]
    deletions = [
        ("DELETE", f"/voices/{mine.voice}"),
        ("DELETE", f"/tasks/{mine.task}/artifacts/{mine.artifact}"),
    ]
    for stranger in strangers:
        headers = stranger | {"X-Request-Id": "the-same"}
        for method, path in [*routes(mine), *deletions]:
            foreign = await speech.http.request(method, path, headers=headers)
            never = await speech.http.request(method, absent(path, mine), headers=headers)
            assert foreign.status_code == 404, (method, path, foreign.text)
            assert _said(foreign.json()) == _said(never.json()), (method, path)
        taken = await speech.generate(mine.voice, headers)
        never = await speech.generate(to_text(new_id()), headers)
        malformed = await speech.generate("no id at all", headers)
        assert (taken.status_code, taken.json()["code"]) == (404, "voice_not_found")
        assert _said(taken.json()) == _said(never.json()) == _said(malformed.json())
        for path in ("/tasks", "/generations", "/voices"):
            assert (await speech.http.get(path, headers=stranger)).json()["items"] == []
    for method, path in routes(mine):
        own = await speech.http.request(method, path, headers=mine.headers)
        assert own.status_code == 200, (method, path, own.text)


def _said(problem: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in problem.items() if name != "timestamp"}


async def test_an_admin_is_a_user_like_others(speech: SpeechDeployment) -> None:
    mine = await UserResources.of(speech, "alice")
    # The deployment's key is of the user `dev`, and has every scope.
    assert (await speech.http.get(f"/tasks/{mine.task}")).status_code == 404
    assert (await speech.http.get("/tasks")).json()["items"] == []


async def test_a_key_of_a_users_reads_what_is_the_users(speech: SpeechDeployment) -> None:
    mine = await UserResources.of(speech, "alice")
    key = await speech.deployment.create_key(user="alice")
    read = await speech.http.get(f"/tasks/{mine.task}", headers={"Authorization": f"Bearer {key}"})
    assert read.json()["id"] == mine.task


@asynccontextmanager
async def acting_for(
    connection: asyncpg.Connection[asyncpg.Record], org: str | None, user: str | None
) -> AsyncIterator[None]:
    """As the surface's reads do it; or without saying for whom."""
    async with connection.transaction():
        if org is None and user is None:
            await connection.execute("SET LOCAL ROLE coatcheck_user")
        else:
            await sql.fetch(connection, "set_user_role", org=org, user=user)
        yield


async def counts(connection: asyncpg.Connection[asyncpg.Record]) -> dict[str, int]:
    return {
        table: await connection.fetchval(
            f"SELECT count(*) FROM {table}" if table != "jobs" else "SELECT count(id) FROM jobs"
        )
        for table in TABLES
    }


@pytest_asyncio.fixture(loop_scope="module")
async def connection(speech: SpeechDeployment) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    opened = await asyncpg.connect(speech.deployment.settings.database_url)
    yield opened
    await opened.close()


async def test_the_database_shows_the_role_one_users_rows_and_nobody_none(
    speech: SpeechDeployment, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    dora, erik = await UserResources.of(speech, "dora"), await UserResources.of(speech, "erik")
    nothing = dict.fromkeys(TABLES, 0)
    async with acting_for(connection, None, None):
        assert await counts(connection) == nothing
    for org, user in [("default", ""), ("", "dora"), ("other", "dora"), ("default", "user:dora")]:
        async with acting_for(connection, org, user):
            assert await counts(connection) == nothing, (org, user)
    async with acting_for(connection, "default", "dora"):
        assert await counts(connection) == dict.fromkeys(TABLES, 1)
        seen = await connection.fetchval("SELECT text FROM generations")
        assert seen == "The coat is ready."
        # Asking for somebody else's by name finds nothing either.
        asked = await connection.fetch(
            "SELECT id FROM generations WHERE user_id = 'erik' OR id IS NOT NULL AND org_id <> ''"
            " AND user_id <> 'dora'"
        )
        assert asked == []
    # What was set went with its transaction.
    async with acting_for(connection, None, None):
        assert await counts(connection) == nothing
    assert await connection.fetchval("SELECT current_user") != "coatcheck_user"
    assert (await counts(connection))["generations"] >= 2
    assert dora.generation != erik.generation


async def test_the_role_cannot_step_over_the_wall_nor_write(
    connection: asyncpg.Connection[asyncpg.Record],
) -> None:
    role = await connection.fetchrow(
        "SELECT rolsuper, rolbypassrls, rolcanlogin, rolcreaterole FROM pg_roles"
        " WHERE rolname = 'coatcheck_user'"
    )
    assert role is not None
    assert not any(role)
    secured = await connection.fetchval(
        "SELECT count(*) FROM pg_class WHERE relname = ANY ($1::text[]) AND relrowsecurity", TABLES
    )
    assert secured == len(TABLES)
    refused = [
        "DELETE FROM voices",
        "UPDATE generations SET text = ''",
        "INSERT INTO artifacts SELECT * FROM artifacts",
        "SELECT payload FROM jobs",
        "SELECT lease FROM jobs",
        "SELECT * FROM remote_calls",
        "SELECT * FROM api_keys",
        "ALTER TABLE voices DISABLE ROW LEVEL SECURITY",
        "TRUNCATE voices",
    ]
    for statement in refused:
        async with acting_for(connection, "default", "dora"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with connection.transaction():
                    await connection.execute(statement)
    # The switch that turns the wall off for those who may makes it an error for those who may not.
    async with acting_for(connection, "default", "dora"):
        await connection.execute("SET LOCAL row_security = off")
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            async with connection.transaction():
                await connection.fetch("SELECT id FROM voices")


async def test_what_the_surface_reads_is_read_behind_the_wall(
    speech: SpeechDeployment, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Were the first wall forgotten, the second would still stand: the policies alone, changed to
    show nothing, make everything vanish for its reader, and for nobody else."""
    mine = await UserResources.of(speech, "fay")
    repository, reader = (
        speech.deployment.engine.extension(SpeechRepository),
        SpeechReader("default", "fay"),
    )
    assert (await repository.task(reader, mine.task)).spoken.id == mine.generation
    walls = await connection.fetch(
        "SELECT polrelid::regclass::text AS name, pg_get_expr(polqual, polrelid) AS shows"
        " FROM pg_policy WHERE polname = 'own_rows'"
    )
    assert {wall["name"] for wall in walls} == set(TABLES)
    for table in TABLES:
        await connection.execute(f"ALTER POLICY own_rows ON {table} USING (false)")
    try:
        with pytest.raises(JobNotFound):
            await repository.task(reader, mine.task)
        with pytest.raises(GenerationNotFound):
            await repository.generation(reader, mine.generation)
        with pytest.raises(VoiceNotFound):
            await repository.voice(reader, mine.voice)
        assert list(await repository.tasks(reader)) == list(await repository.voices(reader)) == []
        assert (await speech.deployment.engine.get(mine.task)).terminal
    finally:
        for wall in walls:
            await connection.execute(
                f"ALTER POLICY own_rows ON {wall['name']} USING ({wall['shows']})"
            )
    assert (await repository.task(reader, mine.task)).spoken.id == mine.generation
