"""The speech surface: text in, audio out, spoken elsewhere by a voice of the user's own."""
