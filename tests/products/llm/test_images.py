from __future__ import annotations

import base64

import pytest

from coatcheck.products.llm.images import read_images


@pytest.mark.parametrize(
    ("beginning", "media_type", "ending"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png", "png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg", "jpg"),
        (b"GIF89a", "image/gif", "gif"),
        (b"RIFF\x10\0\0\0WEBP", "image/webp", "webp"),
        (b"RIFF\x10\0\0\0WAVE", "application/octet-stream", "bin"),
        (b"", "application/octet-stream", "bin"),
    ],
)
def test_an_image_is_known_by_its_first_bytes(
    beginning: bytes, media_type: str, ending: str
) -> None:
    data = beginning + b"..."
    [image] = read_images([base64.b64encode(data).decode()])
    assert (image.name, image.media_type, image.data) == (f"image-1.{ending}", media_type, data)


def test_what_is_no_base64_is_left_out_and_the_others_keep_their_numbers() -> None:
    images = list(read_images(["QQ==", "not base64!", "ä", "Qg=="]))
    assert [image.name for image in images] == ["image-1.bin", "image-4.bin"]
    assert [image.data for image in images] == [b"A", b"B"]
