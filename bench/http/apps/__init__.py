"""The yardsticks: small applications on the same server and the same event loop."""
