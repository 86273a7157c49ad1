"""A server that behaves like Ollama and has no model: for tests, demonstrations and measurements.

It speaks Ollama's API, loads and evicts "models", answers every prompt in its own words at a set
pace, and fails on demand. The same prompt always gets the same answer.

    async with OllamaUpstream(tokens_per_second=100, load_seconds=2) as upstream:
        ...  # upstream.url is what COATCHECK_LLM_URL would be

As a program: ``python -m examples.ollama_upstream --help``.
"""

from examples.ollama_upstream.catalogue import MODELS, Model
from examples.ollama_upstream.faults import Fault
from examples.ollama_upstream.records import Request, Seen
from examples.ollama_upstream.upstream import OllamaUpstream

__all__ = ["MODELS", "Fault", "Model", "OllamaUpstream", "Request", "Seen"]
