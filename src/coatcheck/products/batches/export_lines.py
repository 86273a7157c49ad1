"""The name and the lines of an export, as bytes. There are a million of them: each is put together,
not built.

What goes in as JSON (results, artifacts) comes out as it is, but on one line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from coatcheck.domain.ids import to_text
from coatcheck.encoding import encode
from coatcheck.products.batches.model import TaskStatus
from coatcheck.products.batches.queries.exports import ListedLine

Show = Callable[[bytes], bytes]
"""What a caller is shown of a result."""


def file_name(batch: UUID, run: UUID | None) -> str:
    """What an export is called when it is downloaded: of a run, or of the batch as a whole."""
    return f"{to_text(batch)}.zip" if run is None else f"{to_text(batch)}-{to_text(run)}.zip"


def as_it_is(result: bytes) -> bytes:
    return result


def result_lines(rows: Sequence[Any], show: Show = as_it_is) -> bytes:
    """Tasks that succeeded: rows of ``batch_exports.ended``."""
    lines: list[bytes] = []
    shown_at: dict[datetime, bytes] = {}
    run_ids: dict[UUID, bytes] = {}
    for (
        uuid,
        index,
        custom_id,
        attempts,
        finished_at,
        result,
        _,
        _,
        artifacts,
        position,
        run,
    ) in rows:
        if run not in run_ids:
            run_ids[run] = to_text(run).encode()
        moment = shown_at.get(finished_at)
        if moment is None:
            moment = shown_at[finished_at] = encode(finished_at)
        value = b"null" if result is None else _on_one_line(show(result))
        lines.append(
            b'{"id":"%b","run_id":"%b","index":%d,"job_index":%d,"custom_id":%b,"status":"succeeded",'
            b'"result":%b,'
            b'"attempts":%d,"finished_at":%b%b}\n'
            % (
                uuid.hex.encode(),
                run_ids[run],
                index,
                position,
                b"null" if custom_id is None else encode(custom_id),
                value,
                attempts,
                moment,
                b"" if artifacts is None else b',"artifacts":' + _on_one_line(artifacts.encode()),
            )
        )
    return b"".join(lines)


def error_lines(rows: Sequence[Any], status: TaskStatus) -> bytes:
    """Tasks that failed or were cancelled: rows of ``batch_exports.ended``."""
    name = encode(status)
    lines: list[bytes] = []
    shown_at: dict[datetime, bytes] = {}
    run_ids: dict[UUID, bytes] = {}
    for (
        uuid,
        index,
        custom_id,
        attempts,
        finished_at,
        _,
        code,
        message,
        artifacts,
        position,
        run,
    ) in rows:
        if run not in run_ids:
            run_ids[run] = to_text(run).encode()
        moment = shown_at.get(finished_at)
        if moment is None:
            moment = shown_at[finished_at] = encode(finished_at)
        lines.append(
            b'{"id":"%b","run_id":"%b","index":%d,"job_index":%d,"custom_id":%b,"status":%b,'
            b'"error":{"code":%b,"message":%b},"attempts":%d,"finished_at":%b%b}\n'
            % (
                uuid.hex.encode(),
                run_ids[run],
                index,
                position,
                b"null" if custom_id is None else encode(custom_id),
                name,
                encode(code),
                encode(message),
                attempts,
                moment,
                b"" if artifacts is None else b',"artifacts":' + _on_one_line(artifacts.encode()),
            )
        )
    return b"".join(lines)


def bad_line_lines(rows: Sequence[ListedLine], run: UUID) -> bytes:
    """Invalid lines. ``part`` counts the lists of the run from 1."""
    run_id = to_text(run).encode()
    return b"".join(
        b'{"run_id":"%b","part":%d,"line":%d,"error":{"code":%b,"message":%b}}\n'
        % (run_id, row.part, row.line, encode(row.code), encode(row.message))
        for row in rows
    )


def _on_one_line(json: bytes) -> bytes:
    """The same JSON without line breaks, which it can only have between its parts."""
    if b"\n" in json or b"\r" in json:
        return msgspec.json.format(json, indent=-1)
    return json
