from __future__ import annotations

from coatcheck.blobs.keys import (
    artifact_key,
    artifacts_of,
    input_key,
    input_of_piece,
    inputs_of,
    job_of,
)
from coatcheck.domain.ids import new_id


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
