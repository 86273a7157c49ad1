"""A service without calls: its worker ingests lists and writes exports, and runs no task."""

from coatcheck import Service

idle = Service("idle")


@idle.post("/rest")
async def rest() -> None:
    return None
