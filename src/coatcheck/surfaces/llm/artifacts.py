"""A job's files: the images of its answer, and an answer that is too long for a row."""

from __future__ import annotations

from coatcheck.control.artifact_answers import OwnedJobs, artifact_operations
from coatcheck.control.operations import ULID, Operation, Parameter
from coatcheck.control.parts import Parts
from coatcheck.domain.llm import LLM_KINDS
from coatcheck.surfaces.llm.scene import Scene
from coatcheck.surfaces.llm.voice import JOBS, shows_artifacts


def operations(parts: Parts, scene: Scene) -> list[Operation]:
    finder = OwnedJobs(
        scene.engine,
        scene.job,
        lambda job_id: scene.voice.urls(job_id).poll,
        LLM_KINDS,
        shows=shows_artifacts,
    )
    return artifact_operations(
        parts,
        finder,
        path=f"{JOBS}/{{id}}",
        name="chat",
        tag="llm",
        parameters=(Parameter("id", "path", "The job's id.", ULID),),
    )
