"""A service with one endpoint of each kind: async, plain, isolated.

Run it, then submit a job from another terminal:

    make up ARGS="examples.documents:documents"
    .venv/bin/coatcheck submit documents.post__word_table '{"text": "to be or not to be"}' --wait
"""

from __future__ import annotations

import asyncio
import csv
import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from coatcheck import Job, Service

documents = Service("documents")


class Heading(BaseModel):
    level: int
    title: str


@documents.post("/outline", lane="urgent", timeout=30)
async def outline(job: Job, text: str) -> list[Heading]:
    """Async: runs on the worker's event loop. For handlers that wait rather than compute."""
    headings = []
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        marks, _, title = line.partition(" ")
        if marks and set(marks) == {"#"}:
            headings.append(Heading(level=len(marks), title=title))
            await job.emit(headings[-1])
        if number % 1000 == 0:
            await job.progress(number / len(lines))
            await asyncio.sleep(0)  # let the worker's other jobs have their turn
    return headings


@documents.post("/digest", retries=0)
def digest(job: Job, text: str, algorithm: Literal["sha256", "blake2b"] = "sha256") -> str:
    """Plain: runs in a thread of the worker. For libraries that block."""
    job.log("digesting", characters=len(text))
    return hashlib.new(algorithm, text.encode()).hexdigest()


@documents.post("/word-table", isolated=True, memory_mb=512, cpu_seconds=60, concurrency=4)
def word_table(job: Job, text: str, top: Annotated[int, Field(ge=1, le=1000)] = 10) -> int:
    """Isolated: runs in its own process, which can be killed and whose folder is removed.

    For code that may hang or leak memory. ``job.temp_dir`` is also its working folder.
    """
    counts: dict[str, int] = {}
    for word in text.lower().split():
        job.check_cancelled()
        counts[word] = counts.get(word, 0) + 1
    most_common = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:top]

    table = Path("words.csv")
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("word", "count"), *most_common])
    job.attach("words.csv", table, media_type="text/csv")
    return len(counts)
