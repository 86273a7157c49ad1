"""A service that takes every method, and whose jobs end at once."""

from __future__ import annotations

from coatcheck import Job, Service

WORDS = "words.txt"

things = Service("things")


@things.get("/thing")
async def get_thing() -> str:
    return "got"


@things.post("/thing")
async def post_thing() -> str:
    return "posted"


@things.put("/thing")
async def put_thing() -> str:
    return "put"


@things.patch("/thing")
async def patch_thing() -> str:
    return "patched"


@things.delete("/thing")
async def delete_thing() -> str:
    return "deleted"


@things.post("/echo/{name}")
async def echo(name: str, value: object = None, count: int = 0) -> dict[str, object]:
    return {"name": name, "value": value, "count": count}


@things.post("/talk")
async def talk(job: Job) -> str:
    await job.log("a line")
    await job.emit("a piece")
    await job.progress(0.5, "half-way")
    await job.attach(WORDS, b"said", media_type="text/plain")
    return "said"
