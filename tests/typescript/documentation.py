"""The programs of the TypeScript client's pages, and a project to run them in."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.markdown import REPOSITORY, Page
from tests.typescript.package import PACKAGE, TSC, node

GUIDE = Page(REPOSITORY / "docs" / "how-to" / "use-the-typescript-client.md")
REFERENCE = Page(REPOSITORY / "docs" / "reference" / "typescript.md")
README = Page(PACKAGE / "README.md")
PACKED = "coatcheck-0.1.0.tgz"
ENDED = "-- end of a program"
# One after the other in one process: starting node takes longer than most of them.
RUN_ALL = f"""
for (const file of process.argv.slice(2)) {{
  await import(file);
  console.log("{ENDED}");
}}
"""


@dataclass(frozen=True)
class Program:
    """A block of TypeScript, and what the page says it prints."""

    name: str
    text: str
    prints: str


def programs() -> list[Program]:
    """All of them. There is no other code on these pages but commands."""
    return [program for page in (GUIDE, README, REFERENCE) for program in _programs(page)]


def _programs(page: Page) -> Iterator[Program]:
    blocks = [block for block in page.blocks() if block.info != "sh"]
    for number, (program, output) in enumerate(zip(blocks[::2], blocks[1::2], strict=True)):
        assert (program.info, output.info) == ("ts", "text"), f"{page.name}: {program.text}"
        yield Program(f"{page.path.stem}-{number}", program.text, output.text)


async def make_project(folder: Path) -> None:
    """A project that has the package as it is packed, and the programs, compiled strictly."""
    told = [line for block in GUIDE.blocks("sh") for line in block.text.splitlines()]
    assert {"npm pack ./clients/typescript", f"npm install ./{PACKED}"} <= set(told)
    (folder / "package.json").write_text(json.dumps({"private": True, "type": "module"}))
    await _run("npm", "pack", PACKAGE, "--ignore-scripts", "--loglevel=error", cwd=folder)
    with tarfile.open(folder / PACKED) as packed:  # our own package: nothing in it to guard against
        packed.extractall(folder / "node_modules")
    (folder / "node_modules" / "package").rename(folder / "node_modules" / "coatcheck")
    options = {
        "strict": True,
        "target": "ES2022",
        "module": "NodeNext",
        "skipLibCheck": True,
        "typeRoots": [str(PACKAGE / "node_modules" / "@types")],
    }
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options}))
    (folder / "run-all.js").write_text(RUN_ALL)
    for program in programs():
        (folder / f"{program.name}.ts").write_text(program.text)
    await _run(TSC, "--project", folder, cwd=folder)


async def outputs(project: Path, env: dict[str, str]) -> dict[str, str]:
    """What each program prints, by its name."""
    names = [program.name for program in programs()]
    files = [project / f"{name}.js" for name in names]
    printed = await node("run-all.js", *files, env=env, cwd=project)
    return dict(zip(names, printed.split(f"{ENDED}\n")[:-1], strict=True))


async def _run(*words: str | Path, cwd: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *map(str, words),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
