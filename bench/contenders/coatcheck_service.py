"""The service that `coatcheck worker` loads for the bench."""

from bench.recorder import Recorder
from coatcheck import Job, Service

noop = Service("noop")
recorder = Recorder.from_environment()


@noop.post("/run")
async def run(job: Job, n: int, pad: str) -> dict[str, int]:
    recorder.job_started(n)
    return {"n": n}
