"""The llm scenario: an Ollama-compatible upstream, called directly and through Coatcheck."""
