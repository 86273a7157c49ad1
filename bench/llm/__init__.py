"""The llm scenario: an Ollama-shaped upstream, called directly and through Coatcheck."""
