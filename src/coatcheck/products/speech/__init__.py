"""The speech product: text in, audio out, spoken by a remote with a voice of the user."""
