"""Archives as the usual programs make them: each has to be read, byte for byte."""

from __future__ import annotations

import io
import random
import shutil
import struct
import subprocess
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.archives.forge import (
    DEFLATED,
    MAX32,
    STORED,
    UTF8,
    End,
    End64,
    Part,
    archive,
    extra_field,
    streamed,
    unicode_path,
)

Files = Mapping[str, bytes]

FILES: Files = {
    "project/README.md": b"# A project\n",
    "project/src/empty.py": b"",
    "project/src/main.py": b"import os\n\n\ndef main():\n    return os.getpid()\n" * 40,
    "project/src/Ünïcödé 文件.py": b"x = 1\n",
    "project/data/random.bin": random.Random(3).randbytes(200_000),
    "project/data/zeros.bin": bytes(400_000),
}


@dataclass(frozen=True)
class Good:
    """An archive to read, and what it holds."""

    name: str
    build: Callable[[Path], bytes]
    files: Files
    possible: bool = True


class _Pipe(io.RawIOBase):
    """A stream that cannot be sought, so that sizes are written behind the data."""

    def __init__(self) -> None:
        self.written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.written += data  # type: ignore[operator]
        return len(data)  # type: ignore[arg-type]


def packed_by_zipfile(
    files: Files,
    *,
    deflate: bool = True,
    seekable: bool = True,
    large: bool = False,
    folders: bool = False,
    comment: bytes = b"",
) -> bytes:
    out: IO[bytes] | _Pipe = io.BytesIO() if seekable else _Pipe()
    method = zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED
    with zipfile.ZipFile(out, "w", method) as target:  # type: ignore[arg-type]
        if folders:
            for folder in ("project/", "project/src/", "project/data/", "project/nothing/"):
                target.writestr(zipfile.ZipInfo(folder), b"")
        for name, data in files.items():
            with target.open(zipfile.ZipInfo(name), "w", force_zip64=large) as file:
                file.write(data)
        target.comment = comment
    return bytes(out.written) if isinstance(out, _Pipe) else out.getvalue()  # type: ignore[attr-defined]


def _zip(*arguments: str) -> Callable[[Path], bytes]:
    """Made by Info-ZIP."""

    def build(folder: Path) -> bytes:
        for name, data in FILES.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        made = subprocess.run(
            ["zip", "-q", "-r", *arguments, "-", "project"],
            cwd=folder,
            check=True,
            stdout=subprocess.PIPE,
            env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin:/usr/local/bin"},
        )
        return made.stdout

    return build


def _zip_to_file(folder: Path) -> bytes:
    _zip()(folder)  # lays the files out
    subprocess.run(
        ["zip", "-q", "-r", "out.zip", "project"],
        cwd=folder,
        check=True,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin:/usr/local/bin"},
    )
    return (folder / "out.zip").read_bytes()


def _jar(folder: Path) -> bytes:
    _zip()(folder)
    subprocess.run(["jar", "cMf", "out.jar", "project"], cwd=folder, check=True)
    return (folder / "out.jar").read_bytes()


def _git(folder: Path) -> bytes:
    """As a code host hands out: the commit in the comment, a prefix, and folders."""
    _zip()(folder)
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *arguments], cwd=folder, check=True)
    made = subprocess.run(
        ["git", "archive", "--format=zip", "HEAD"], cwd=folder, check=True, stdout=subprocess.PIPE
    )
    return made.stdout


_FOLDER = {"mode": 0o40755, "dos": 0x10}
_SMALL: Files = {"a.py": b"print('hello')\n", "b/c.py": b"print('hello')\n"}


def _forged(name: str, *parts: Part, **whole: object) -> Good:
    def build(_: Path) -> bytes:
        return archive(*parts, **whole)  # type: ignore[arg-type]

    return Good(name, build, _SMALL)


def _made(name: str, **options: object) -> Good:
    def build(_: Path) -> bytes:
        return packed_by_zipfile(FILES, **options)  # type: ignore[arg-type]

    return Good(f"zipfile: {name}", build, FILES)


_HAS_ZIP = shutil.which("zip") is not None

CASES: Sequence[Good] = (
    _made("deflated"),
    _made("stored", deflate=False),
    _made("with folders", folders=True),
    _made("with a comment", comment=b"a comment"),
    _made("with the longest comment", comment=b"c" * 65_535),
    _made("to a pipe", seekable=False),
    _made("stored to a pipe", seekable=False, deflate=False),
    _made("as ZIP64", large=True),
    _made("as ZIP64 to a pipe", large=True, seekable=False),
    _made("with a commit as comment", comment=b"9fceb02d0ae598e95dc970b74767f19372d61af8"),
    Good("Info-ZIP: to a pipe", _zip(), FILES, _HAS_ZIP),
    Good("Info-ZIP: stored to a pipe", _zip("-0"), FILES, _HAS_ZIP),
    Good("Info-ZIP: without folders or times", _zip("-D", "-X"), FILES, _HAS_ZIP),
    Good("Info-ZIP: to a file", _zip_to_file, FILES, _HAS_ZIP),
    Good("jar", _jar, FILES, _HAS_ZIP and shutil.which("jar") is not None),
    Good("git archive", _git, FILES, _HAS_ZIP and shutil.which("git") is not None),
    _forged("two plain files", Part(b"a.py"), Part(b"b/c.py")),
    _forged("a directory in another order", Part(b"a.py"), Part(b"b/c.py"), order=(1, 0)),
    _forged("descriptors", streamed(b"a.py"), streamed(b"b/c.py", signed=False)),
    _forged("large descriptors", streamed(b"a.py", large=True), streamed(b"b/c.py", large=True)),
    _forged(
        "a large descriptor, unsigned", streamed(b"a.py", large=True, signed=False), Part(b"b/c.py")
    ),
    _forged("UTF-8 by flag", Part(b"a.py", flags=UTF8), Part(b"b/c.py", flags=UTF8)),
    _forged(
        "the name twice, and equal",
        Part(b"a.py", extra=unicode_path(b"a.py", b"a.py")),
        Part(b"b/c.py"),
    ),
    _forged(
        "no modes, made on DOS",
        Part(b"a.py", made_by=20, mode=0),
        Part(b"b/c.py", made_by=20, mode=0),
    ),
    _forged(
        "a folder deflated by Java", Part(b"a.py"), Part(b"b/", b"", **_FOLDER), Part(b"b/c.py")
    ),  # type: ignore[arg-type]
    _forged("an extra field", Part(b"a.py", local_extra=extra_field(0xCAFE, b"")), Part(b"b/c.py")),
    _forged(
        "sizes in the local header and in its ZIP64 field",
        Part(b"a.py", method=0, local_extra=extra_field(1, struct.pack("<QQ", 15, 15))),
        Part(b"b/c.py"),
    ),
    _forged("ZIP64 end records", Part(b"a.py"), Part(b"b/c.py"), end64=End64()),
    _forged(
        "ZIP64 end records alone count",
        Part(b"a.py"),
        Part(b"b/c.py"),
        end=End(entries=0xFFFF, length=MAX32, offset=MAX32),
        end64=End64(),
    ),
    Good(
        "UTF-8 that Finder does not announce",
        lambda _: archive(Part("naïve.py".encode(), b"1", method=STORED)),
        {"naïve.py": b"1"},
    ),
    Good(
        "names of one letter in two folders",
        lambda _: archive(Part(b"A/x", b"1"), Part(b"a/y", b"2", method=DEFLATED)),
        {"A/x": b"1", "a/y": b"2"},
    ),
    Good(
        "the longest and the deepest path",
        lambda _: archive(Part(b"a" * 255, b"1"), Part(b"/".join([b"d"] * 32), b"2")),
        {"a" * 255: b"1", "/".join("d" * 32): b"2"},
    ),
    Good(
        "an archive within, that stays a file",
        lambda _: archive(Part(b"inner.zip", archive(Part(b"../evil")), method=STORED)),
        {"inner.zip": archive(Part(b"../evil"))},
    ),
    Good(
        "10,000 files",
        lambda _: archive(*(Part(b"d/%d" % at, b"%d" % at) for at in range(10_000))),
        {f"d/{at}": b"%d" % at for at in range(10_000)},
    ),
)
