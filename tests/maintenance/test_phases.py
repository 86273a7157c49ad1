"""Loops that start together do not tick together."""

from __future__ import annotations

from coatcheck.db.connection import Connection
from coatcheck.maintenance.loop import Loop
from tests.waiting import until_true

PAUSE = 10.0


class Restless(Loop):
    """Writes down how long it would rest, and rests no time."""

    name = "restless"
    elected = False

    def __init__(self, db: Connection) -> None:
        super().__init__(db)
        self.rests: list[float] = []

    async def tick(self) -> float:
        return PAUSE

    async def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        await super().rest(0.0)


async def test_each_loop_rests_for_a_part_of_its_first_pause_and_then_for_whole_ones(
    dsn: str,
) -> None:
    db = Connection(dsn, name="test")
    loops = [Restless(db) for _ in range(10)]
    for loop in loops:
        loop.start()
    for loop in loops:
        await until_true(lambda loop=loop: len(loop.rests) > 3, "it ticked")  # type: ignore[misc]
        await loop.stop()
    firsts = [loop.rests[0] for loop in loops]
    assert all(0 <= first < PAUSE for first in firsts)
    assert len({*firsts}) == len(loops)
    assert {rest for loop in loops for rest in loop.rests[1:]} == {PAUSE}
