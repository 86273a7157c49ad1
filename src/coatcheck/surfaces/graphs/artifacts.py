"""A job's files: a graph that is too large for a row."""

from __future__ import annotations

from coatcheck.control.artifact_answers import OwnedJobs, artifact_operations
from coatcheck.control.operations import ULID, Operation, Parameter
from coatcheck.control.parts import Parts
from coatcheck.domain.graphs import GRAPH_ENDPOINTS
from coatcheck.domain.states import State
from coatcheck.surfaces.graphs.reading import JOB
from coatcheck.surfaces.graphs.scene import Scene
from coatcheck.surfaces.graphs.submitting import PAYMENT


def operations(parts: Parts, scene: Scene) -> list[Operation]:
    finder = OwnedJobs(
        scene.engine,
        scene.job,
        lambda job_id: scene.voice.urls(job_id).poll,
        GRAPH_ENDPOINTS,
        shows=lambda view: view.state is State.COMPLETED,
    )
    return artifact_operations(
        parts,
        finder,
        path=JOB,
        name="graph_job",
        tag="graphs",
        parameters=(Parameter("id", "path", "The job's id.", ULID),),
        also=(PAYMENT,),
    )
