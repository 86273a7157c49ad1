"""Bodies packed in every way that servers do."""

from __future__ import annotations

import gzip
import zlib

import pytest

TEXT = b"".join(b"line %d\n" % number for number in range(20_000))


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def two_members(data: bytes) -> bytes:
    return gzip.compress(data[:1000]) + gzip.compress(data[1000:])


def padded(data: bytes) -> bytes:
    return gzip.compress(data) + bytes(512)


PACKED = pytest.mark.parametrize(
    ("coding", "pack"),
    [
        ("gzip", gzip.compress),
        ("X-Gzip", gzip.compress),
        ("gzip", two_members),
        ("gzip", padded),
        ("deflate", zlib.compress),
        ("deflate", bare_deflate),
        ("identity", bytes),
    ],
)
