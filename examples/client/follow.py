"""Follow a job as it runs: its states, its log lines, and its output piece by piece.

make up ARGS="examples.hello:hello examples.documents:documents"
COATCHECK_API_KEY=$(cat .coatcheck/dev-key) .venv/bin/python examples/client/follow.py
"""

import asyncio

from coatcheck import AsyncClient

TEXT = "# To be\nor not to be\n## That is the question\n"


async def main() -> None:
    async with AsyncClient() as client:
        job = await client.submit("documents", "outline", {"text": TEXT})
        async for event in job.stream():
            match event.name:
                case "chunk":
                    print("heading:", event.data["title"])
                case "log":
                    print("log:", event.data["message"])
                case "end":
                    print(f"{job.status} with {len(job.result)} headings")


asyncio.run(main())
