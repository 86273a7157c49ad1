"""Which certificate authorities are trusted, and that they are read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from coatcheck.tls import trusted_authorities
from tests.egress.certificates import make_authority


@pytest.mark.parametrize("trust_env", [True, False])
def test_all_who_ask_share_what_was_read(trust_env: bool) -> None:
    assert trusted_authorities(trust_env=trust_env) is trusted_authorities(trust_env=trust_env)


def test_the_authorities_that_the_environment_names_are_trusted_by_whom_it_may_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, fixed = trusted_authorities(), trusted_authorities(trust_env=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(make_authority(tmp_path).certificate))
    named = trusted_authorities()
    assert named is not usual
    (only,) = named.get_ca_certs()
    assert "an authority for tests" in str(only["subject"])
    assert trusted_authorities(trust_env=False) is fixed
