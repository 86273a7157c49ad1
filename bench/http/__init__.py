"""The control plane over HTTP, beside the cheapest servers there are for the same request."""
