"""What jobs have used: read, and summed up. One method a file of ``sql/usage``.

It is written by the statements that end jobs; ``schema/0005_owner_and_usage.sql`` says how.
"""

from __future__ import annotations

from datetime import date

from coatcheck.domain.usage import UsageRow
from coatcheck.store.line import Line
from coatcheck.store.sql import sql


async def read(
    line: Line, org: str, first_day: date, last_day: date, endpoint: str | None
) -> list[UsageRow]:
    """What an organisation used, by day, endpoint and flow; both days are included."""
    rows = await line.fetch(sql("usage/read"), org, first_day, last_day, endpoint)
    return [UsageRow(*row) for row in rows]


async def roll_up(line: Line, rows_max: int) -> int:
    """Move a chunk of what was used into the sums. How many rows it was."""
    rows = await line.fetch(sql("usage/roll_up"), rows_max)
    moved: int = rows[0][0]
    return moved
