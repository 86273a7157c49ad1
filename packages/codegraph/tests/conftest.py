"""Property tests run without a deadline here, as they do in the rest of the repository."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How fast values are drawn and tried says more of a busy machine than of them.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
