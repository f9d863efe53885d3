"""The claims of a verified token: validation, and mapping to a user."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import orjson

from apiserver_stub.authn.jwt.configuration import (
    ClaimMappings,
    ClaimOrExpression,
    JWTAuthenticator,
    PrefixedClaimOrExpression,
)
from apiserver_stub.authn.jwt.expressions import Expression, ExpressionError, claims_value, user_value
from apiserver_stub.authn.jwt.rules import ClaimCondition, Expressions
from controller_manager.common.serving.authentication import User

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
LEEWAY = 60.0
"""Seconds that the clock of an issuer may be ahead; no leeway if it is behind, as in kube-apiserver."""
_FARTHEST = float(2**63)
_STRINGS_WANTED = "expression must return a string or a list of strings"

Claims = dict[str, Any]


class ClaimError(ValueError):
    """The claims of a token are invalid or map to no user; the message is the reason."""


class Source(msgspec.Struct):
    """The source of a distributed claim (OpenID Connect Core 1.0, section 5.6.2)."""

    endpoint: str | None = None
    access_token: str | None = None


class RegisteredClaims(msgspec.Struct):
    """The claims that every token has, or may have, by their types."""

    exp: int | float | str
    aud: str | list[str | None] | None = None
    nbf: int | float | str | None = None
    iat: int | float | str = 0
    sub: str | None = None
    nonce: str | None = None
    at_hash: str | None = None
    claim_names: dict[str, str] | None = msgspec.field(name="_claim_names", default=None)
    claim_sources: dict[str, Source] | None = msgspec.field(name="_claim_sources", default=None)


def read_claims(payload: bytes) -> tuple[Claims, RegisteredClaims]:
    """Return all claims and the registered ones. The last of duplicate names counts (RFC 7519, section 4). Raises
    `ClaimError`.
    """
    try:
        claims = orjson.loads(payload)
        registered = msgspec.convert(claims, RegisteredClaims)
        _seconds(registered.iat)
    except ValueError as error:
        raise ClaimError(f"the claims of the token are malformed: {error}") from None
    sources = registered.claim_sources or {}
    if not all(source and source in sources for source in (registered.claim_names or {}).values()):
        raise ClaimError("a source of distributed claims of the token does not exist")
    return claims, registered


def expiry(registered: RegisteredClaims, audiences: Collection[str], now: float) -> float:
    """Return the expiry of a token (seconds since the epoch) for one of the audiences. Raises `ClaimError` if it is not
    valid now.
    """
    meant = registered.aud if isinstance(registered.aud, list) else [registered.aud]
    if not any(one in audiences for one in meant):
        raise ClaimError(f"the token is for the audiences {meant}, expected one of {sorted(audiences)}")
    try:
        end = _seconds(registered.exp)
        begin = _seconds(registered.nbf or 0)
    except ValueError as error:
        raise ClaimError(f"the claims of the token are malformed: {error}") from None
    if end < now or end >= _FARTHEST:
        raise ClaimError("the token is expired")
    if now + LEEWAY < begin:
        raise ClaimError("the token is not valid yet")
    return end


def make_user(claims: Claims, rules: JWTAuthenticator, expressions: Expressions) -> User:
    """Map claims to a user. Raises `ClaimError`."""
    try:
        return _Mapping(claims, rules.claim_mappings, expressions).user(rules)
    except ExpressionError as error:
        raise ClaimError(str(error)) from None
    except RecursionError:
        raise ClaimError("the claims of the token are nested too deeply") from None


class _Mapping:
    """Maps the claims of one token. The CEL value of the claims is created on first use."""

    def __init__(self, claims: Claims, mappings: ClaimMappings, expressions: Expressions) -> None:
        self._claims = claims
        self._mappings = mappings
        self._expressions = expressions
        self._value: dict[str, Any] | None = None

    def user(self, rules: JWTAuthenticator) -> User:
        name = self._username(self._mappings.username)
        if not name:
            raise ClaimError("the token has no user name")
        user = User(name, self._uid(self._mappings.uid), self._groups(self._mappings.groups), self._extra())
        for rule in rules.claim_validation_rules:
            if rule.claim and self._text(rule.claim) != rule.required_value:
                raise ClaimError(f"the claim {rule.claim} of the token does not have the required value")
        for condition in self._expressions.claim_rules:
            _require(condition, self._evaluate(condition.expression))
        for condition in self._expressions.user_rules:
            _require(condition, condition.expression.evaluate(user_value(user)))
        return user

    def _username(self, mapping: PrefixedClaimOrExpression) -> str:
        if self._expressions.username is not None:
            return _one_string("username", self._evaluate(self._expressions.username))
        name = self._text(mapping.claim)
        if mapping.claim == "email" and "email_verified" in self._claims and self._claims["email_verified"] is not True:
            raise ClaimError("the email address of the token is not verified")
        return (mapping.prefix or "") + name

    def _groups(self, mapping: PrefixedClaimOrExpression) -> tuple[str, ...]:
        if self._expressions.groups is not None:
            return _strings("groups", self._evaluate(self._expressions.groups))
        found = self._claims.get(mapping.claim) if mapping.claim else None
        if found is None:
            return ()
        names = ["" if one is None else one for one in found] if isinstance(found, list) else [found]
        if not all(isinstance(name, str) for name in names):
            raise ClaimError(f"the claim {mapping.claim} of the token is neither a string nor a list of strings")
        return tuple((mapping.prefix or "") + name for name in names)

    def _uid(self, mapping: ClaimOrExpression) -> str:
        if self._expressions.uid is not None:
            return _one_string("uid", self._evaluate(self._expressions.uid))
        return self._text(mapping.claim) if mapping.claim else ""

    def _extra(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        identifier = self._claims.get("jti")
        if identifier and isinstance(identifier, str):
            found[CREDENTIAL_ID] = (f"JTI={identifier}",)
        for key, expression in self._expressions.extra:
            values = _strings(key, self._evaluate(expression))
            if values:
                found[key] = values
        return found

    def _text(self, name: str) -> str:
        """Return a required string claim; `null` is an empty string."""
        if name not in self._claims:
            raise ClaimError(f"the token has no claim {name}")
        found = self._claims[name]
        if not isinstance(found, str | None):
            raise ClaimError(f"the claim {name} of the token is not a string")
        return found or ""

    def _evaluate(self, expression: Expression) -> Any:
        if self._value is None:
            self._value = claims_value(self._claims)
        return expression.evaluate(self._value)


def _require(condition: ClaimCondition, value: Any) -> None:
    if value is not True:
        text = condition.expression.text
        raise ClaimError(f"validation expression '{text}' failed{condition.message and ': '}{condition.message}")


def _one_string(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ClaimError(f"the {what} expression must return a string")
    return value


def _strings(what: str, value: Any) -> tuple[str, ...]:
    """Return the strings that an expression gave, without the empty ones."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(one, str) for one in values):
        raise ClaimError(f"{what}: {_STRINGS_WANTED}")
    return tuple(one for one in values if one)


def _seconds(value: float | str) -> float:
    """Return a time in whole seconds since the epoch; numbers may be strings. Raises `ValueError`."""
    if isinstance(value, str):
        value = int(value) if value.removeprefix("-").isdecimal() and value.isascii() else float(value)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError("a time must be a number")
    return float(int(value))
