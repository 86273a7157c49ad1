"""Submit many jobs at once, collect their results, and report the failures.

make up ARGS="examples.hello:hello examples.documents:documents"
COATCHECK_API_KEY=$(cat .coatcheck/dev-key) .venv/bin/python examples/client/many.py
"""

import asyncio

from coatcheck import AsyncClient, JobFailed

ALGORITHMS = ["sha256", "blake2b", "rot13"]


async def digest(client: AsyncClient, algorithm: str) -> str:
    # The same key finds the same job, should this program be started twice.
    job = await client.submit(
        "documents",
        "digest",
        {"text": "to be or not to be", "algorithm": algorithm},
        lane="bulk",
        idempotency_key=f"digest-of-hamlet-{algorithm}",
    )
    try:
        await job.wait(timeout=60)
    except JobFailed as error:
        return f"{algorithm}: {error.code}: {error.message}"
    return f"{algorithm}: {job.result[:16]}"


async def main() -> None:
    async with AsyncClient() as client:
        for line in await asyncio.gather(*(digest(client, name) for name in ALGORITHMS)):
            print(line)
        page = await client.list("documents", status="failed", limit=10)
        print(f"{page.total} failed")


asyncio.run(main())
