"""A token is taken if a trusted issuer signed it as its settings say, and for no other reason."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.domain.errors import Unauthenticated
from coatcheck.domain.tenants import ALL_SCOPES, USER_SCOPES, OrgLimits, Principal, RateLimit, Scope
from coatcheck.http.auth.tokens import TokenCheck
from coatcheck.settings import Settings
from coatcheck.settings.parsers import TokenIssuer
from tests.http.auth.issuers import (
    ANOTHER_RSA,
    AUDIENCE,
    ED25519,
    ISSUER,
    P256,
    P384,
    RSA,
    SECRET,
    WEAK_RSA,
    KeySetServer,
    claims,
    hand_made,
    hand_signed,
    key_set_server,
    published,
    secret_issuer,
    token,
)
from tests.http.auth.replicas import ORG, PEPPER, Replica, replica

PUBLIC = ("RS256", "PS256", "ES256", "ES384", "EdDSA")


@pytest.fixture
async def key_set() -> AsyncIterator[KeySetServer]:
    async with key_set_server() as serving:
        serving.keys = [
            published(RSA, "RS256", "rsa"),
            published(P256, "ES256", "p256"),
            published(P384, "ES384", "p384"),
            published(ED25519, "EdDSA", "ed"),
            published(WEAK_RSA, "RS256", "weak"),
        ]
        yield serving


@pytest.fixture
async def by_key_set(key_set: KeySetServer) -> AsyncIterator[TokenCheck]:
    issuer = TokenIssuer(issuer=ISSUER, audience=AUDIENCE, jwks_url=key_set.url, algorithms=PUBLIC)
    checking = TokenCheck([issuer])
    yield checking
    await checking.close()


by_secret = TokenCheck([secret_issuer()])


async def refused(checking: TokenCheck, credential: bytes) -> bool:
    try:
        await checking.check(credential)
    except Unauthenticated:
        return True
    return False


async def test_a_users_token_says_who_calls() -> None:
    checked = await by_secret.check(token())
    assert checked.principal == Principal("acme", "user", "user:ada", USER_SCOPES, user="ada")
    assert 590 < checked.seconds_left <= 600


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (RSA, "RS256", "rsa"),
        (RSA, "PS256", "rsa"),
        (P256, "ES256", "p256"),
        (P384, "ES384", "p384"),
        (ED25519, "EdDSA", "ed"),
    ],
)
async def test_tokens_signed_with_published_keys_are_taken(
    by_key_set: TokenCheck, key: Any, algorithm: str, kid: str
) -> None:
    signed = token(key, algorithm, headers={"kid": kid})
    assert (await by_key_set.check(signed)).principal.user == "ada"


async def test_a_token_that_names_no_key_is_taken_if_only_one_fits(
    by_key_set: TokenCheck, key_set: KeySetServer
) -> None:
    assert not await refused(by_key_set, token(P256, "ES256"))
    assert await refused(by_key_set, token(RSA, "RS256"))  # there is the weak one, too


BAD_CLAIMS: dict[str, Callable[[], dict[str, Any]]] = {
    "expired": lambda: claims(exp=int(time.time()) - 31),
    "no exp": lambda: claims(exp=None),
    "exp is text": lambda: claims(exp="soon"),
    "exp is a list": lambda: claims(exp=[1]),
    "exp is infinite": lambda: claims(exp=float("inf")),
    "not yet valid": lambda: claims(nbf=int(time.time()) + 60),
    "issued in the future": lambda: claims(iat=int(time.time()) + 60),
    "wrong issuer": lambda: claims(iss="https://other.example"),
    "no issuer": lambda: claims(iss=None),
    "issuer is a list": lambda: claims(iss=[ISSUER]),
    "wrong audience": lambda: claims(aud="other"),
    "wrong audiences": lambda: claims(aud=["other", "another"]),
    "no audience": lambda: claims(aud=None),
    "no user": lambda: claims(sub=None),
    "user is empty": lambda: claims(sub=""),
    "user is a number": lambda: claims(sub=7),
    "user has a newline": lambda: claims(sub="ada\n"),
    "user is too long": lambda: claims(sub="a" * 256),
    "no organisation": lambda: claims(org=None),
    "organisation is every one": lambda: claims(org="*"),
    "organisation is a path": lambda: claims(org="acme/../other"),
    "organisation is a list": lambda: claims(org=["acme"]),
    "scope is a number": lambda: claims(scope=1),
    "scope is an object": lambda: claims(scope={"submit": True}),
}


@pytest.mark.parametrize("what", BAD_CLAIMS)
async def test_a_well_signed_token_with_bad_claims_is_refused(what: str) -> None:
    unchecked = jwt.PyJWS().encode(json.dumps(BAD_CLAIMS[what]()).encode(), SECRET, "HS256")
    assert await refused(by_secret, unchecked.encode())


@pytest.mark.parametrize("what", BAD_CLAIMS)
async def test_the_same_by_a_published_key(by_key_set: TokenCheck, what: str) -> None:
    payload = json.dumps(BAD_CLAIMS[what]()).encode()
    signed = jwt.PyJWS().encode(payload, ED25519, "EdDSA", headers={"kid": "ed"})
    assert await refused(by_key_set, signed.encode())


@pytest.mark.parametrize("late", [29, 0])
async def test_a_clock_that_is_a_little_off_does_no_harm(late: int) -> None:
    now = int(time.time())
    assert not await refused(by_secret, token(claims=claims(exp=now - late + 5, nbf=now + 25)))


async def test_a_token_signed_by_hand_is_as_good_as_any() -> None:
    """So what the tests below sign by hand is refused for its header alone."""
    assert not await refused(by_secret, hand_signed({"alg": "HS256"}, claims(), SECRET.encode()))


FORBIDDEN_HEADERS: dict[str, dict[str, Any]] = {
    "crit": {"crit": ["exp"]},
    "crit that is unknown": {"crit": ["http://example/unknown"], "http://example/unknown": 1},
    "jku": {"jku": "https://attacker.example/keys"},
    "x5u": {"x5u": "https://attacker.example/cert"},
    "x5c": {"x5c": ["MIIB"]},
    "jwk": {"jwk": published(ANOTHER_RSA, "RS256", "mine")},
}


@pytest.mark.parametrize("what", FORBIDDEN_HEADERS)
async def test_a_header_that_says_where_to_look_is_refused(
    by_key_set: TokenCheck, what: str
) -> None:
    headers = FORBIDDEN_HEADERS[what]
    signed = hand_signed({"alg": "HS256"} | headers, claims(), SECRET.encode())
    assert await refused(by_secret, signed)
    assert await refused(by_key_set, token(ED25519, "EdDSA", headers={"kid": "ed"} | headers))


@pytest.mark.parametrize("encoded", [True, False])
async def test_a_header_that_changes_what_is_signed_is_refused(encoded: bool) -> None:
    header = {"alg": "HS256", "b64": encoded}
    assert await refused(by_secret, hand_signed(header, claims(), SECRET.encode()))


def _public_pem() -> bytes:
    return RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _signed_with_the_public_key() -> bytes:
    """The old trick: HS256 with what everybody may read as its secret."""
    return hand_signed({"alg": "HS256", "kid": "rsa"}, claims(), _public_pem())


FORGED: dict[str, Callable[[], bytes]] = {
    "alg none": lambda: hand_made({"alg": "none"}, claims()),
    "alg None": lambda: hand_made({"alg": "None"}, claims()),
    "alg none with a signature": lambda: hand_made({"alg": "none"}, claims(), b"x" * 32),
    "no alg": lambda: hand_made({"typ": "JWT"}, claims(), b"x" * 32),
    "alg is a list": lambda: hand_made({"alg": ["HS256"]}, claims(), b"x" * 32),
    "HS with a public key": _signed_with_the_public_key,
    "HS with another secret": lambda: token("another secret of 32 characters or so"),
    "HS512, not allowed here": lambda: token(SECRET * 2, "HS512"),
    "signed by another key": lambda: token(ANOTHER_RSA, "RS256", headers={"kid": "rsa"}),
    "RS512, not allowed here": lambda: token(RSA, "RS512", headers={"kid": "rsa"}),
    "key of another kind": lambda: token(ED25519, "EdDSA", headers={"kid": "rsa"}),
    "unknown key id": lambda: token(RSA, "RS256", headers={"kid": "nobody's"}),
    "too short a key": lambda: token(WEAK_RSA, "RS256", headers={"kid": "weak"}),
    "empty signature": lambda: hand_made({"alg": "RS256", "kid": "rsa"}, claims()),
    "signature cut short": lambda: token(RSA, "RS256", headers={"kid": "rsa"})[:-4],
    "empty HS signature": lambda: hand_made({"alg": "HS256"}, claims()),
    "claims swapped": lambda: b".".join(
        [
            token().split(b".")[0],
            token(claims=claims(sub="grace")).split(b".")[1],
            token().split(b".")[2],
        ]
    ),
    "key id is an object": lambda: hand_made({"alg": "RS256", "kid": {}}, claims(), b"x"),
    "claims are a list": lambda: hand_made({"alg": "HS256"}, [claims()], b"x"),
    "claims are nested deeply": lambda: b".".join(
        [
            base64.urlsafe_b64encode(b'{"alg":"HS256"}'),
            base64.urlsafe_b64encode(b"[" * 5000).rstrip(b"="),
            b"eA",
        ]
    ),
    "header is nested deeply": lambda: base64.urlsafe_b64encode(b"[" * 5000) + b".e30.eA",
    "two parts": lambda: b"eyJhbGciOiJIUzI1NiJ9.e30",
    "four parts": lambda: token() + b".eA",
    "not base64": lambda: b"!!.??.##",
    "not UTF-8": lambda: b"\xff.\xff.\xff",
    "empty": lambda: b"",
    "dots": lambda: b"..",
}


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits long")
@pytest.mark.parametrize("what", FORGED)
async def test_a_forged_token_is_refused(by_key_set: TokenCheck, what: str) -> None:
    forged = FORGED[what]()
    assert await refused(by_secret, forged)
    assert await refused(by_key_set, forged)


async def test_without_issuers_no_token_is_taken() -> None:
    assert await refused(TokenCheck([]), token())


@pytest.mark.parametrize(
    ("given", "scopes"),
    [
        ({}, USER_SCOPES),
        ({"scope": "read"}, {Scope.READ}),
        ({"scope": "openid submit  admin read"}, ALL_SCOPES),
        ({"scope": "openid profile"}, set()),
        ({"scope": ""}, set()),
        ({"scopes": ["admin", "other"]}, {Scope.ADMIN}),
        ({"scopes": []}, set()),
        ({"scope": "read", "scopes": ["admin"]}, {Scope.READ}),
    ],
)
async def test_a_token_allows_what_its_scopes_say(
    given: dict[str, Any], scopes: set[Scope]
) -> None:
    checked = await by_secret.check(token(claims=claims(**given)))
    assert checked.principal.scopes == scopes


async def test_a_service_token_is_known_by_its_custom_claims() -> None:
    checking = TokenCheck([secret_issuer(kind="service")])

    async def owner(**given: Any) -> str:
        checked = await checking.check(token(claims=claims(**given)))
        assert (checked.principal.kind, checked.principal.user) == ("service", None)
        return checked.principal.owner

    expected = hashlib.sha256(b'{"plan":{"a":1,"b":[2]},"tenant":"x"}').hexdigest()
    mine = await owner(tenant="x", plan={"b": [2], "a": 1})
    assert mine == f"claims:{expected}"
    assert mine == await owner(
        plan={"a": 1, "b": [2]}, tenant="x", sub=None, iat=1, nbf=1, jti="7", scope="read"
    )
    assert mine != await owner(tenant="y", plan={"b": [2], "a": 1})
    assert mine != await owner(tenant="x")


async def test_an_issuer_may_call_the_organisation_what_it_likes() -> None:
    checking = TokenCheck([secret_issuer(org_claim="https://issuer.example/tenant")])
    named = claims(org=None) | {"https://issuer.example/tenant": "zeta"}
    assert (await checking.check(token(claims=named))).principal.org == "zeta"
    assert await refused(checking, token())


async def test_one_issuer_may_serve_two_audiences_each_in_its_own_way() -> None:
    checking = TokenCheck(
        [secret_issuer(), secret_issuer(audience="robots", kind="service", secret="r" * 32)]
    )
    robot = token("r" * 32, claims=claims(aud=["robots"]))
    assert (await checking.check(robot)).principal.kind == "service"
    assert (await checking.check(token())).principal.kind == "user"
    assert await refused(checking, token("r" * 32))
    assert await refused(checking, token(claims=claims(aud="robots")))


def _settings(dsn: str, **given: Any) -> Settings:
    return Settings(
        database_url=dsn,
        key_pepper=PEPPER,
        jwt_secret=SECRET,
        jwt_issuer=ISSUER,
        jwt_audience=AUDIENCE,
        **given,
    )


async def test_a_tokens_organisation_need_not_have_a_row(dsn: str, line: Connection) -> None:
    async with replica(_settings(dsn)) as one:
        principal = await one.authenticator.check(token(claims=claims(org="nowhere")))
        assert (principal.org_rate, principal.org_backlog_max) == (None, None)


async def test_a_tokens_organisation_is_limited_as_its_row_says(dsn: str, line: Connection) -> None:
    async with replica(_settings(dsn)) as one:
        signed = token()
        assert (await one.authenticator.check(signed)).org_rate is None
        assert one.authenticator.known(signed) is not None
        await tenants.limit_org(line, ORG, OrgLimits(RateLimit(5, 1), 9))
        await one.news()
        assert one.authenticator.known(signed) is None
        principal = await one.authenticator.check(signed)
        assert (principal.org_rate, principal.org_backlog_max) == (RateLimit(5, 1), 9)


async def test_a_token_is_remembered_no_longer_than_it_lives(dsn: str, line: Connection) -> None:
    async with replica(_settings(dsn)) as one:
        one.now = 1000.0
        signed = token(claims=claims(exp=int(time.time()) + 60))
        overdue = token(claims=claims(exp=int(time.time()) - 5))
        for credential in (signed, overdue):
            await one.authenticator.check(credential)
        assert one.authenticator.known(overdue) is None
        one.now += 58
        assert one.authenticator.known(signed) is not None
        one.now += 3
        assert one.authenticator.known(signed) is None


async def test_keys_and_tokens_go_through_the_same_door(one: Replica) -> None:
    """No issuer is trusted there."""
    assert not await one.accepts(token())
