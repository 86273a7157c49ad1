"""The sizes of the llm scenario. Every measurement is bounded."""

from dataclasses import dataclass

STREAMS = 4
TOKENS_PER_SECOND = 100
MODEL = "llama3.2"


@dataclass(frozen=True)
class Amounts:
    chats: int = 100
    """Chats one after the other, each way; for the time to the first token."""
    chat_tokens: int = 4
    runs: int = 3
    """Runs of all streams at once, each way; for the rate."""
    stream_tokens: int = 500


FULL = Amounts()
QUICK = Amounts(chats=20, runs=1, stream_tokens=200)
