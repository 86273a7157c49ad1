"""The errors of the LLM API."""

from __future__ import annotations

from coatcheck.domain.errors import NotFound


class LlmNotConfigured(NotFound):
    """No target is set that could be called. Its text says what to set."""

    code = "llm_not_configured"
    public_text = None
