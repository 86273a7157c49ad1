"""The llm surface: chats with Ollama-shaped targets, queued or streamed through."""
