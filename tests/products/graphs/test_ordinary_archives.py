"""Ordinary repositories become graphs: with links, names that differ in case, and much else."""

from __future__ import annotations

import io
import os
import subprocess
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.archives.forge import Part, archive
from tests.deployment import Deployment
from tests.products.graphs.archives import post

SOURCES = {
    "BUILD": "rule\n",
    "build/make.py": "def make():\n    return 1\n",
    "docs/README.md": "# Shop\n",
    "docs/Readme.md": "# Shop, again\n",
    "net/match_MARK.c": "int match(void) { return 1; }\n",
    "net/match_mark.c": "int match_again(void) { return 2; }\n",
    "shop/till.py": "from build.make import make\n\n\ndef total():\n    return make()\n",
}


def git(folder: Path, *words: str, given: str | None = None) -> bytes:
    who = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for role in ("AUTHOR", "COMMITTER"):
        who |= {f"GIT_{role}_NAME": "Test", f"GIT_{role}_EMAIL": "test@example.org"}
    return subprocess.run(
        ["git", *words],
        cwd=folder,
        env=os.environ | who,
        input=None if given is None else given.encode(),
        stdout=subprocess.PIPE,
        check=True,
    ).stdout


def git_archive(folder: Path, files: Mapping[str, str], links: Mapping[str, str]) -> bytes:
    """What ``git archive`` makes of a repository with these files and symbolic links.

    They are put into git's index by their names, so that the folder's file system need not tell
    names apart that differ only in case.
    """
    folder.mkdir()
    git(folder, "init", "--quiet")
    for mode, entries in (("100644", files), ("120000", links)):
        for name, content in entries.items():
            blob = git(folder, "hash-object", "-w", "--stdin", given=content).decode().strip()
            git(folder, "update-index", "--add", "--cacheinfo", f"{mode},{blob},{name}")
    git(folder, "commit", "--quiet", "--message", "All")
    return git(folder, "archive", "--format=zip", "--prefix=shop-main/", "HEAD")


async def graph_of(deployment: Deployment, data: bytes, key: str = "k") -> dict[str, Any]:
    answer = await post(deployment.http, data, key, operation="supermodel", Prefer="wait=60")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    assert body["status"] == "completed", body
    result: dict[str, Any] = body["result"]
    return result


def paths(result: Mapping[str, Any]) -> set[str]:
    return {
        node["properties"]["path"]
        for node in result["graph"]["nodes"]
        if node["labels"][0] == "File"
    }


async def test_what_git_archives_becomes_a_graph_and_what_was_skipped_is_counted(
    deployment: Deployment, tmp_path: Path
) -> None:
    await deployment.start_graphs_worker()
    links = {"current": "shop", "shop/alias.py": "till.py"}
    data = git_archive(tmp_path / "repository", SOURCES, links)
    with zipfile.ZipFile(io.BytesIO(data)) as opened:  # it is as the test says it is
        modes = {info.filename: info.external_attr >> 28 for info in opened.infolist()}
    assert modes["shop-main/shop/alias.py"] == 0o12

    result = await graph_of(deployment, data)
    assert paths(result) == {
        "shop-main/build/make.py",
        "shop-main/net/match_MARK.c",
        "shop-main/shop/till.py",
    }
    stats = result["stats"]
    # Of names that differ in case, the one that sorts first is kept; BUILD gives way to build/.
    assert stats["entriesSkipped"] == 5
    assert stats["entriesSkippedByReason"] == {"name_case": 3, "symlink": 2}
    assert stats["filesProcessed"] == 3
    assert result["metadata"]["fileCount"] == 3


def lying(*names: str) -> bytes:
    """An archive whose entries of these names do not unpack to what they promise."""
    bad: Iterable[Part] = (Part(name.encode(), b"x = 1\n", crc=1) for name in names)
    return archive(Part(b"good.py", b"def good():\n    pass\n"), *bad)


async def test_what_is_not_parsed_is_not_unpacked(deployment: Deployment) -> None:
    await deployment.start_graphs_worker()
    result = await graph_of(deployment, lying("data.bin", "node_modules/a.js", "page.min.js"))
    assert paths(result) == {"good.py"}
    assert result["stats"]["filesSkippedByReason"] == {"generated": 1, "vendored": 1}


async def test_more_entries_and_more_bytes_than_are_allowed_are_refused(
    dsn: str, tmp_path: Path
) -> None:
    small = {"archive_entries_max": 3, "archive_unpacked_mb_max": 1}
    async with Deployment(dsn, tmp_path, **small) as deployment:
        many = await post(
            deployment.http, archive(*(Part(b"%d.py" % at) for at in range(4))), "many"
        )
        noise = os.urandom(700_000)
        large = archive(*(Part(b"%d.bin" % at, noise, method=0) for at in range(2)))
        much = await post(deployment.http, large, "much")
        fine = await post(
            deployment.http, archive(*(Part(b"%d.py" % at) for at in range(3))), "fine"
        )
    assert fine.status_code == 202
    issues = [answer.json()["details"][0]["issue"] for answer in (many, much)]
    assert [answer.status_code for answer in (many, much)] == [422, 422]
    assert issues == ["too_many_entries", "unpacked_too_large"]


def crowd(number: int, *more: Part) -> bytes:
    """So many empty files, whose directory is longer than what a server keeps of an upload."""
    folder = b"assets/" + b"d" * 40
    empty = (Part(folder + b"/%07d.png" % at, b"", method=0) for at in range(number))
    return archive(Part(b"main.py", b"def main():\n    pass\n"), *empty, *more)


async def test_tens_of_thousands_of_entries_are_taken_in(deployment: Deployment) -> None:
    await deployment.start_graphs_worker()
    data = crowd(60_000)
    directory_bytes = int.from_bytes(data[-10:-6], "little")
    assert directory_bytes > 6 * 1024 * 1024
    result = await graph_of(deployment, data)
    assert paths(result) == {"main.py"}


async def test_a_bad_entry_behind_tens_of_thousands_is_refused_before_a_job_exists(
    deployment: Deployment,
) -> None:
    for name, reason in ((b"../evil.py", "path_traversal"), (b"main.py", "duplicate_name")):
        answer = await post(deployment.http, crowd(60_000, Part(name)), reason)
        assert answer.status_code == 422, answer.text
        assert answer.json()["details"][0]["issue"] == reason
    stored = [key async for keys in deployment.engine.blobs.keys_under("") for key in keys]
    assert stored == []
