"""The same number of single jobs as a batch has tasks, in the same lane, for the same workers."""

from bench.contenders.coatcheck import BULK_CHUNK, ENDPOINT
from bench.payload import payload_object
from bench.submitters import in_chunks
from coatcheck import Engine, Submission

LANE = "bulk"
_SECONDS_MAX = 300.0


async def load(address: str, jobs: int) -> None:
    engine = await Engine.connect(address)

    async def submit_chunk(numbers: range) -> None:
        await engine.submit_many(
            [Submission(ENDPOINT, payload_object(number), lane=LANE) for number in numbers]
        )

    try:
        loaded = await in_chunks(submit_chunk, jobs, BULK_CHUNK, _SECONDS_MAX)
    finally:
        await engine.close()
    if loaded.jobs != jobs:
        raise RuntimeError(
            f"only {loaded.jobs:,} of {jobs:,} jobs were loaded in {_SECONDS_MAX:.0f} s"
        )
