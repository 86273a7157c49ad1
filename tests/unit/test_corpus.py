"""The corpus of real packages: pinned, checked before it is unpacked, the same zip every time."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests import corpus
from tests.corpus import CorpusError, package, package_zip

FILES = {"tiny-1.0/src/b.py": b"b = 1\n", "tiny-1.0/a.py": b"a = 1\n"}


def tarball(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


class Index:
    """A package index in a folder, and the corpus that pins one file of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "files").mkdir(parents=True)
        (folder / "simple" / "tiny-thing").mkdir(parents=True)

    def offer(self, content: bytes, *, sha256: str | None = None) -> None:
        (self.folder / "files" / "tiny-1.0.tar.gz").write_bytes(content)
        (self.folder / "simple" / "tiny-thing" / "index.html").write_text(
            '<a href="../../files/tiny-0.9.tar.gz#sha256=0">old</a>'
            '<a href="../../files/tiny-1.0.tar.gz#sha256=0">new</a>'
        )
        corpus.PINS.write_text(
            '[tiny]\npackage = "tiny_thing"\nregistry = "pypi"\nversion = "1.0"\n'
            f'file = "tiny-1.0.tar.gz"\n'
            f'sha256 = "{sha256 or hashlib.sha256(content).hexdigest()}"\n'
        )


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setattr(corpus, "PINS", tmp_path / "corpus.toml")
    monkeypatch.setattr(corpus, "CORPUS", tmp_path / "corpus")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "index" / "simple").as_uri())
    return Index(tmp_path / "index")


@pytest.fixture
def served(index: Index) -> Iterator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=str(index.folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/simple"
        server.shutdown()
        serving.join()


def unpacked(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def left_in_the_corpus() -> list[str]:
    return [path.name for path in corpus.CORPUS.iterdir() if path.suffix != ".lock"]


def test_a_package_is_fetched_from_a_folder_and_unpacked_without_its_top_folder(
    index: Index,
) -> None:
    index.offer(tarball(FILES))
    assert unpacked(package("tiny")) == {"src/b.py": b"b = 1\n", "a.py": b"a = 1\n"}


def test_a_package_is_fetched_from_a_server(
    index: Index, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.offer(tarball(FILES))
    monkeypatch.setenv("PIP_INDEX_URL", served)
    assert "a.py" in unpacked(package("tiny"))


def test_a_package_that_is_there_is_not_fetched_again(index: Index) -> None:
    index.offer(tarball(FILES))
    folder = package("tiny")
    (index.folder / "files" / "tiny-1.0.tar.gz").unlink()
    assert package("tiny") == folder


def test_a_file_with_another_hash_is_refused_and_nothing_of_it_is_kept(index: Index) -> None:
    index.offer(tarball(FILES), sha256="0" * 64)
    with pytest.raises(CorpusError, match="has the SHA-256"):
        package("tiny")
    assert left_in_the_corpus() == []


def test_a_file_that_cannot_be_had_fails_with_what_to_do(index: Index) -> None:
    index.offer(tarball(FILES))
    (index.folder / "files" / "tiny-1.0.tar.gz").unlink()
    with pytest.raises(CorpusError, match="scripts/fetch_corpus"):
        package("tiny")
    assert left_in_the_corpus() == []


def test_an_archive_that_reaches_outside_is_not_unpacked(index: Index, tmp_path: Path) -> None:
    index.offer(tarball({"../../evil": b"x"}))
    with pytest.raises(CorpusError, match="outside"):
        package("tiny")
    assert list(tmp_path.rglob("evil")) == []


def test_the_zip_has_the_same_bytes_whenever_it_is_made(index: Index) -> None:
    index.offer(tarball(FILES))
    first = package_zip("tiny").read_bytes()
    package_zip("tiny").unlink()
    for path in package("tiny").rglob("*"):
        path.touch()
    assert package_zip("tiny").read_bytes() == first
    with zipfile.ZipFile(package_zip("tiny")) as archive:
        assert archive.namelist() == ["a.py", "src/b.py"]
        assert archive.read("src/b.py") == b"b = 1\n"


def test_a_package_that_is_not_pinned_is_refused_with_those_that_are(index: Index) -> None:
    index.offer(tarball(FILES))
    with pytest.raises(CorpusError, match="tiny"):
        package("unknown")
