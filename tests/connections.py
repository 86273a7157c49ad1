"""Ending a connection from the server's side, whatever became of it."""

from __future__ import annotations

import asyncio


def break_off(connection: asyncio.StreamWriter) -> None:
    """Cut it now, and drop what was not sent. One that has ended already is left alone.

    ``abort()`` of a transport that was closed while it still had something to send, and has sent it
    since, is an error of asyncio: its loop is gone by then.
    """
    transport = connection.transport
    if not transport.is_closing() or transport.get_write_buffer_size() > 0:
        transport.abort()
