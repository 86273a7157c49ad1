"""The llm product: chats with models on Ollama-shaped servers, queued or streamed."""
