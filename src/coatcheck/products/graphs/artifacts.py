"""A job's files: a graph that is too large for a row."""

from __future__ import annotations

from coatcheck.domain.states import State
from coatcheck.http.artifacts import OwnedJobs, artifact_operations
from coatcheck.http.context import Parts
from coatcheck.http.routing import ULID, Operation, Parameter
from coatcheck.products.graphs.context import Scene
from coatcheck.products.graphs.read_routes import JOB
from coatcheck.products.graphs.submit_routes import PAYMENT
from coatcheck.settings.graph_operations import GRAPH_ENDPOINTS


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
