"""OpenAI's API on top of llm jobs: chat completions, responses, completions, embeddings."""
