from coatcheck import Job, Service

hello = Service("hello")


@hello.post("/greet")
async def greet(job: Job, name: str) -> dict[str, str]:
    await job.progress(0.5, "thinking of a greeting")
    return {"greeting": f"Hello, {name}!"}
