"""The command line of the text-to-speech server.

python -m examples.tts_remote --port 8900 --folder tts-jobs
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from dataclasses import fields
from pathlib import Path

if __package__ in (None, ""):  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.tts_remote import NotInstalled, TtsRemote
from examples.tts_remote.job_folders import InUse
from examples.tts_remote.tuning import Tuning

_ABOUT = {
    "job_seconds": "duration of every job besides speaking",
    "voices": "processes that speak at once",
    "speak_seconds_max": "a text that takes longer to speak fails its job",
    "speech_bytes_max": "a text whose speech would be larger fails its job",
    "text_chars_max": "a longer text is refused",
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.tts_remote",
        description="A text-to-speech server with espeak-ng. Jobs are on disk and survive a "
        "restart. Control it over /control.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument(
        "--port", type=int, default=8900, help="0 for any free port (default: 8900)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("tts-jobs"),
        help="folder of the jobs (default: tts-jobs)",
    )
    parser.add_argument("--bearer", help="the bearer token that callers must send")
    for each in fields(Tuning):
        parser.add_argument(
            "--" + each.name.replace("_", "-"),
            type=float if isinstance(each.default, float) else int,
            default=each.default,
            metavar="N",
            help=f"{_ABOUT[each.name]} (default: {each.default})",
        )
    return parser.parse_args()


async def serve(given: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with TtsRemote(
        given.folder,
        host=given.host,
        port=given.port,
        bearer=given.bearer,
        remember=100,
        **{each.name: getattr(given, each.name) for each in fields(Tuning)},
    ) as remote:
        print(f"listening on {remote.url}", flush=True)
        await stop.wait()


def main() -> int:
    given = arguments()
    try:
        asyncio.run(serve(given))
    except (InUse, NotInstalled) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or given.port}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
