from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.blobs.disposition import attachment, with_extension


@pytest.mark.parametrize(
    ("name", "header"),
    [
        (None, "attachment"),
        ("", "attachment"),
        ("export.zip", 'attachment; filename="export.zip"'),
        ("two words.txt", 'attachment; filename="two words.txt"'),
        ("ä.txt", "attachment; filename=\"_.txt\"; filename*=UTF-8''%C3%A4.txt"),
        ("../../etc/passwd", 'attachment; filename=".._.._etc_passwd"'),
        ('a".txt', "attachment; filename=\"a_.txt\"; filename*=UTF-8''a%22.txt"),
        ("a\r\nb: c", "attachment; filename=\"a__b_ c\"; filename*=UTF-8''a%0D%0Ab%3A%20c"),
    ],
)
def test_a_download_has_its_name(name: str | None, header: str) -> None:
    assert attachment(name) == header


@pytest.mark.parametrize(
    ("name", "media_type", "called"),
    [
        ("remote-result", "audio/wav", "remote-result.wav"),
        ("remote-result", "Application/JSON; charset=utf-8", "remote-result.json"),
        ("remote-result", "application/octet-stream", "remote-result"),
        ("remote-result", None, "remote-result"),
        ("plan.v2", "image/svg+xml", "plan.v2"),
    ],
)
def test_a_name_without_an_extension_gets_that_of_its_type(
    name: str, media_type: str | None, called: str
) -> None:
    assert with_extension(name, media_type) == called


@given(st.text(st.characters()))
def test_no_name_leaves_the_header(name: str) -> None:
    header = attachment(name)
    assert header.isascii()
    assert header.isprintable()
    assert header.startswith("attachment")
    assert header.count('"') in (0, 2)
    assert "/" not in header
    assert "\\" not in header
