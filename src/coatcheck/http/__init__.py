"""The control plane: HTTP in front of the engine. It never runs a handler."""
