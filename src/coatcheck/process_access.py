"""Protects a process's memory, environment and open files from other processes of its user.

Linux lets every process of a user read ``/proc/PID/environ`` and ``/proc/PID/mem`` of the user's
other processes, and attach to them like a debugger. So a handler in its own process could read the
worker's database URL. Two measures together prevent this, for root and for other users:

- A process that holds secrets calls ``close_to_others``. The kernel then refuses all of the above
  to processes without the capability CAP_SYS_PTRACE. It also writes no core file.
- A process that runs user code calls ``give_up_capabilities``. This matters to root alone, which
  keeps only a container root's default capabilities, none of which can read other processes.

Both do nothing on systems other than Linux.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterable
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_PR_CAPBSET_DROP: Final = 24
_CAPABILITIES_MAX: Final = 64
_CAPABILITY_VERSION_3: Final = 0x20080522

KEPT_CAPABILITIES: Final = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SETPCAP": 8,
    "CAP_NET_BIND_SERVICE": 10,
    "CAP_NET_RAW": 13,
    "CAP_SYS_CHROOT": 18,
    "CAP_AUDIT_WRITE": 29,
    "CAP_SETFCAP": 31,
}
"""A container root's default capabilities, without CAP_MKNOD, which would let it read the disk."""


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Words(ctypes.Structure):
    """32 capabilities; the kernel takes two of these."""

    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def close_to_others() -> bool:
    """Deny other processes of this user access to this one. False if the system cannot do that.

    It lasts until the process executes another program, and does not extend to children.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")
    return True


def give_up_capabilities(kept: Iterable[int] = tuple(KEPT_CAPABILITIES.values())) -> None:
    """Drop every capability not in ``kept``, for this process and all its children."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    mask = sum(1 << number for number in kept)
    for number in range(_CAPABILITIES_MAX):
        # Dropped from the bounding set, so that root does not regain it by executing a program.
        if not mask >> number & 1 and libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0):
            if ctypes.get_errno() in (errno.EINVAL, errno.EPERM):
                break  # no more capabilities exist, or this is not root, who alone has any
            _check(-1, "prctl(PR_CAPBSET_DROP)")
    header = _Header(_CAPABILITY_VERSION_3, 0)
    words = (_Words * 2)()
    _check(libc.capget(ctypes.byref(header), words), "capget")
    for place, word in enumerate(words):
        part = mask >> 32 * place & 0xFFFFFFFF
        word.effective &= part
        word.permitted &= part
        word.inheritable &= part
    _check(libc.capset(ctypes.byref(header), words), "capset")


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
