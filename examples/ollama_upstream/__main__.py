"""The command line of the upstream.

python -m examples.ollama_upstream --port 11434 --tokens-per-second 100 --load-seconds 2
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

from examples.ollama_upstream import MODELS, OllamaUpstream
from examples.ollama_upstream.tuning import Tuning

_ABOUT = {
    "tokens_per_second": "pace of each answer; 0: as fast as it can",
    "prompt_seconds": "from a loaded model to the first token",
    "load_seconds": "how long a model takes to load",
    "answer_tokens": "length of an answer (default: 16 to 47, as the prompt decides)",
    "keeps_to_schemas": "whether `format` has an effect",
    "tells_logprobs": "whether `logprobs` has an effect",
    "max_loaded": "models in memory at once",
    "parallel": "answers that one model generates at once",
    "max_queue": "waiting requests; more are refused with 503",
    "keep_alive_seconds": "how long an unused model stays in memory",
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.ollama_upstream",
        description="A server that behaves like Ollama and has no model. Control it over /control.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument(
        "--port", type=int, default=11434, help="0 for any free port (default: 11434)"
    )
    parser.add_argument("--token", help="the bearer token that callers must send")
    parser.add_argument(
        "--model",
        action="append",
        dest="models",
        metavar="NAME",
        help=f"may be repeated (default: {', '.join(model.name for model in MODELS)})",
    )
    for each in fields(Tuning):
        if isinstance(each.default, bool):
            parser.add_argument(
                "--" + each.name.replace("_", "-"),
                action=argparse.BooleanOptionalAction,
                default=each.default,
                help=_ABOUT[each.name],
            )
            continue
        number = float if isinstance(each.default, float) else int
        parser.add_argument(
            "--" + each.name.replace("_", "-"),
            type=number,
            default=each.default,
            metavar="N",
            help=_ABOUT[each.name]
            + ("" if each.default is None else f" (default: {each.default:g})"),
        )
    return parser.parse_args()


async def serve(given: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with OllamaUpstream(
        given.models or MODELS,
        host=given.host,
        port=given.port,
        token=given.token,
        remember=100,
        **{each.name: getattr(given, each.name) for each in fields(Tuning)},
    ) as upstream:
        print(f"listening on {upstream.url}", flush=True)
        await stop.wait()


def main() -> int:
    given = arguments()
    try:
        asyncio.run(serve(given))
    except OSError as error:
        print(f"error: {given.host}:{given.port}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
