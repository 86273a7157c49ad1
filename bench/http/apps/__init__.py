"""The servers to compare with: small applications on the same server and event loop."""
