"""The server's settings, in a file of ours that the cluster's own postgresql.conf includes.

Written at every start, so that an upgrade of Coatcheck brings its settings along. Lines that a user
adds to postgresql.conf below the include, and ALTER SYSTEM, win over it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

Setting = str | int | float | bool

MEBIBYTE = 1024 * 1024
SHARED_BUFFERS_MIN_MIB = 128
SHARED_BUFFERS_MAX_MIB = 1024
SHARED_BUFFERS_FRACTION = 8

# wal_compression stays off: the bundled build has neither lz4 nor zstd, and pglz costs a queue more
# processor time than the bytes are worth.
_FIXED: Mapping[str, Setting] = {
    "listen_addresses": "",
    "max_connections": 100,
    "timezone": "UTC",
    # Durability is the product. These are the defaults; saying them keeps them.
    "fsync": True,
    "full_page_writes": True,
    "synchronous_commit": True,
    # A queue writes the same pages again and again: few checkpoints, few full-page images.
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    # Every job leaves dead rows behind; vacuum looks often so that the ready index stays small.
    "autovacuum_naptime": "5s",
    "random_page_cost": 1.1,
    "jit": False,  # compiling a millisecond statement costs more than running it
    # Payloads never reach the log: statements fail at ERROR and quote values in their messages,
    # so errors go to the client alone, and no message brings its detail, statement or parameters.
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "log_min_messages": "log",
    "log_error_verbosity": "terse",
    "log_statement": "none",
    "log_min_error_statement": "panic",
    "log_min_duration_statement": -1,
    "log_min_duration_sample": -1,
    "log_parameter_max_length": 0,
    "log_parameter_max_length_on_error": 0,
}


def settings_file(overrides: Mapping[str, Setting]) -> str:
    """The text of the settings file: our settings, sized for this machine, then `overrides`."""
    sized: dict[str, Setting] = {"shared_buffers": f"{shared_buffers_mib(memory_bytes())}MB"}
    settings = {**_FIXED, **sized, **overrides}
    header = "# Written by Coatcheck at every start: change postgresql.conf instead.\n"
    return header + "".join(f"{name} = {_quoted(value)}\n" for name, value in settings.items())


def shared_buffers_mib(memory: int) -> int:
    """An eighth of the memory: other processes of ours need the rest more than the cache does."""
    share = memory // SHARED_BUFFERS_FRACTION // MEBIBYTE
    return max(SHARED_BUFFERS_MIN_MIB, min(SHARED_BUFFERS_MAX_MIB, share))


def memory_bytes() -> int:
    """The memory this process may use: the machine's, or its container's limit if lower."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit_file = Path("/sys/fs/cgroup/memory.max")
    try:
        limit = limit_file.read_text().strip()
    except OSError:  # not Linux, or no limit of this kind
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine


def _quoted(value: Setting) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    text = str(value).replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"
