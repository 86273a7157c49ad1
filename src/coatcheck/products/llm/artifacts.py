"""A job's files: the images of its answer, and an answer that is too long for a row."""

from __future__ import annotations

from coatcheck.http.artifacts import OwnedJobs, artifact_operations
from coatcheck.http.context import Parts
from coatcheck.http.routing import ULID, Operation, Parameter
from coatcheck.products.llm.context import Scene
from coatcheck.products.llm.model import LLM_KINDS
from coatcheck.products.llm.presenter import JOBS, shows_artifacts


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
