from __future__ import annotations

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import (
    artifact_key,
    artifacts_of,
    input_key,
    input_of_piece,
    inputs_of,
    job_of,
    upload_key,
    upload_of,
    uploads_of,
)
from coatcheck.domain.ids import new_id, to_text
from coatcheck.products.batches.model import (
    export_key,
    export_of,
    exports_of,
    list_key,
    list_of_piece,
    lists_of,
)
from coatcheck.products.speech.model import generation_key, reference_key


def test_a_key_names_its_deployment_and_its_job() -> None:
    deployment, job = new_id(), new_id()
    key = artifact_key(deployment, job)
    assert key.startswith(artifacts_of(deployment) + "/")
    assert key != artifact_key(deployment, job)
    assert job_of(key) == job
    assert job_of("_probe/x") is None
    assert job_of("artifacts/a/b/c") is None


def test_a_piece_names_the_job_and_the_upload_that_it_belongs_to() -> None:
    deployment, job = new_id(), new_id()
    key = input_key(deployment, job)
    assert key.startswith(inputs_of(deployment) + "/")
    assert key != input_key(deployment, job)
    assert input_of_piece(f"{key}/00000") == (job, key)
    assert input_of_piece(f"{key}/00061") == (job, key)


def test_a_key_that_is_not_of_a_piece_belongs_to_no_input() -> None:
    deployment, job = new_id(), new_id()
    assert input_of_piece(input_key(deployment, job)) is None
    assert input_of_piece(f"{artifact_key(deployment, job)}/00000") is None
    assert input_of_piece("inputs/a/b/c/00000") is None
    assert input_of_piece("") is None


def test_a_staged_list_names_its_upload_and_has_one_place() -> None:
    deployment, upload = new_id(), new_id()
    key = upload_key(deployment, upload)
    assert key.startswith(uploads_of(deployment) + "/")
    assert key == upload_key(deployment, upload)
    assert upload_of(key) == upload
    assert upload_of(f"{key}/00000") is None
    assert upload_of("uploads/a/b") is None
    assert upload_of(artifact_key(deployment, upload)) is None


def test_a_piece_of_a_list_names_the_part_and_the_list_that_it_belongs_to() -> None:
    deployment, batch, part = new_id(), new_id(), new_id()
    key = list_key(deployment, batch, part)
    assert key.startswith(lists_of(deployment) + "/")
    assert key != list_key(deployment, batch, part)
    assert list_of_piece(f"{key}/00000") == (part, key)
    assert list_of_piece(key) is None
    assert list_of_piece("lists/a/b/c/d/00000") is None
    assert list_of_piece(f"{input_key(deployment, part)}/x/00000") is None


def test_an_export_names_itself_and_every_attempt_has_a_key_of_its_own() -> None:
    deployment, batch, export = new_id(), new_id(), new_id()
    key = export_key(deployment, batch, export)
    assert key.startswith(exports_of(deployment) + "/")
    assert key != export_key(deployment, batch, export)
    assert export_of(key) == export
    assert export_of("exports/a/b/c/d") is None
    assert export_of(f"{input_key(deployment, export)}/00000") is None


def test_what_is_a_users_own_is_where_they_would_look_for_it() -> None:
    made = new_id()
    assert generation_key("alice", made) == f"generations/alice/{to_text(made)}.wav"
    assert reference_key("alice", made) == f"references/alice/{to_text(made)}/reference.wav"
    assert generation_key("a@b.example", made).split("/")[1] == "a@b.example"


async def test_no_users_name_leads_out_of_its_folder_or_into_anothers(
    container: BlobContainer,
) -> None:
    users = ["..", ".", "%2E%2E", "a/b", "a%2Fb", "A", "a", "#1", "\\", "~x", "%" * 255, "/" * 255]
    made = new_id()
    keys = [generation_key(user, made) for user in users]
    assert len({key.lower() for key in keys}) == len(users) - 1  # of A and a, folders may make one
    assert all(len(key.split("/")) == 3 and len(key) < 300 for key in keys)
    for user, key in zip(users, keys, strict=True):
        await container.put(key, user.encode())
    for user, key in zip(users, keys, strict=True):
        assert await container.get(key) == user.encode()
