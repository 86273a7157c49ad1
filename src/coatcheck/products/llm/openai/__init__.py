"""The OpenAI dialect of the llm API: chat completions, responses, completions, embeddings."""
