"""Who calls: API keys and tokens, checked and remembered."""

from coatcheck.http.auth.authenticator import Authenticator

__all__ = ["Authenticator"]
