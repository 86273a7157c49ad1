"""The models on the upstream's disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from examples.ollama_upstream.failures import model_not_found, model_not_pulled

PULLED_AT = "2026-01-05T09:00:00.123456789Z"
EMBEDDING_LENGTH = 64
_DEFAULT_TAG = "latest"


@dataclass(frozen=True, slots=True)
class Model:
    """One model. ``capabilities`` are Ollama's names for what it can do."""

    name: str
    capabilities: tuple[str, ...] = ("completion", "tools", "vision")
    family: str = "llama"
    parameter_size: str = "3.2B"
    quantization: str = "Q4_K_M"
    size_bytes: int = 2_019_393_189
    context_length: int = 131_072

    def can(self, *abilities: str) -> bool:
        """Whether it has one of these capabilities."""
        return not set(abilities).isdisjoint(self.capabilities)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.name.encode()).hexdigest()

    @property
    def details(self) -> dict[str, Any]:
        return {
            "parent_model": "",
            "format": "gguf",
            "family": self.family,
            "families": [self.family],
            "parameter_size": self.parameter_size,
            "quantization_level": self.quantization,
        }

    @property
    def tag(self) -> dict[str, Any]:
        """The model in the answer to ``GET /api/tags``."""
        return {
            "name": self.name,
            "model": self.name,
            "modified_at": PULLED_AT,
            "size": self.size_bytes,
            "digest": self.digest,
            "details": self.details,
        }

    @property
    def shown(self) -> dict[str, Any]:
        """The answer to ``POST /api/show``."""
        template = "{{ range .Messages }}{{ .Role }}: {{ .Content }}\n{{ end }}"
        return {
            "license": "This model has no weights, and none of their licences.",
            "modelfile": f'FROM {self.name}\nTEMPLATE """{template}"""\n',
            "parameters": 'stop                           "<|end|>"',
            "template": template,
            "details": self.details,
            "model_info": {
                "general.architecture": self.family,
                "general.parameter_count": 3_212_749_888,
                f"{self.family}.context_length": self.context_length,
                f"{self.family}.embedding_length": EMBEDDING_LENGTH,
            },
            "capabilities": list(self.capabilities),
            "modified_at": PULLED_AT,
        }


MODELS: tuple[Model, ...] = (
    Model("llama3.2:latest", ("completion", "tools")),
    Model(
        "qwen3:8b", ("completion", "tools", "thinking"), "qwen3", "8.2B", "Q4_K_M", 5_225_388_164
    ),
    Model("llava:latest", ("completion", "vision"), "llama", "7B", "Q4_0", 4_733_363_377),
    Model("nomic-embed-text:latest", ("embedding",), "nomic-bert", "137M", "F16", 274_302_450),
    Model("x/z-image-turbo:latest", ("image",), "z-image", "6B", "FP8", 12_884_901_888),
)


def full_name(name: str) -> str:
    """``llama3.2`` is ``llama3.2:latest``; case does not matter."""
    base, slash, last = name.lower().rpartition("/")
    return f"{base}{slash}{last}" if ":" in last else f"{base}{slash}{last}:{_DEFAULT_TAG}"


class Shelf:
    """The available models. A bare name is one of ``MODELS``, or a model that can chat."""

    def __init__(self, models: Iterable[Model | str]) -> None:
        known = {model.name: model for model in MODELS}
        self._models: dict[str, Model] = {}
        for given in models:
            name = full_name(given if isinstance(given, str) else given.name)
            self._models[name] = known.get(name, Model(name)) if isinstance(given, str) else given

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def find(self, name: str) -> Model:
        if (model := self._models.get(full_name(name))) is None:
            raise model_not_found(name)
        return model

    def find_to_load(self, name: str) -> Model:
        """As ``find``, in the words of the routes that notice later."""
        if (model := self._models.get(full_name(name))) is None:
            raise model_not_pulled(name)
        return model
