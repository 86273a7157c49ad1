"""The upstream's speed and capacity. They may change while it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tuning:
    tokens_per_second: float = 50.0
    """Of each answer; 0: as fast as it can."""
    prompt_seconds: float = 0.0
    """From a loaded model to the first token."""
    load_seconds: float = 0.0
    answer_tokens: int | None = None
    """Length of an answer; None: 16 to 47, as the prompt decides."""
    keeps_to_schemas: bool = True
    """Whether `format` has an effect: for some models of Ollama's cloud it has none."""
    tells_logprobs: bool = True
    """Whether `logprobs` has an effect: before Ollama 0.12.11 it had none."""
    max_loaded: int = 1
    """OLLAMA_MAX_LOADED_MODELS"""
    parallel: int = 4
    """OLLAMA_NUM_PARALLEL: answers that one model generates at once; more wait."""
    max_queue: int = 512
    """OLLAMA_MAX_QUEUE: more waiting requests than these are refused."""
    keep_alive_seconds: float = 300.0
    """OLLAMA_KEEP_ALIVE"""
