"""Authentication: checks API keys and JWTs, and caches the result."""

from coatcheck.http.auth.authenticator import Authenticator

__all__ = ["Authenticator"]
