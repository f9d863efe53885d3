"""Parses tokens in the compact form (RFC 7515, section 3.1) before verification."""

import base64
import json
import re
from typing import Any, NamedTuple

import msgspec

LONGEST = 128 * 1024
"""Maximum number of characters of a token."""
_LONGEST_HEADER = 16 * 1024
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")
_GOOGLE = "accounts.google.com"


class MalformedToken(ValueError):
    """The token of a known issuer has an invalid format; the message is the reason."""


class UnverifiedToken(NamedTuple):
    """A token of three parts; `issuer` is not verified."""

    issuer: str
    header: str
    signed: bytes
    payload: bytes
    signature: str


class Header(NamedTuple):
    """The signing algorithm and the key id; the latter may be empty."""

    algorithm: str
    key: str


class _Issuer(msgspec.Struct):
    iss: str = ""


_ISSUER = msgspec.json.Decoder(_Issuer)


def take_apart(token: str) -> UnverifiedToken | None:
    """Return the parts of a token; None if it is not a signed JSON Web Token or has no issuer."""
    if len(token) > LONGEST or token.count(".") != 2 or not token.isascii():
        return None
    header, body, signature = token.split(".")
    try:
        payload = decode_part(body)
        issuer = _ISSUER.decode(payload).iss
    except (ValueError, RecursionError):
        return None
    if not issuer:
        return None
    known = f"https://{_GOOGLE}" if issuer == _GOOGLE else issuer
    return UnverifiedToken(known, header, f"{header}.{body}".encode(), payload, signature)


def decode_part(part: str) -> bytes:
    """Return the bytes of a part in base64url without padding (RFC 7515, section 2). Raises `ValueError`."""
    if not _BASE64URL.fullmatch(part):
        raise ValueError("not base64url without padding")
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def read_header(part: str) -> Header:
    """Return the header of a token (RFC 7515, section 4). Embedded keys and key URLs are ignored because they are not
    trusted. Raises `MalformedToken` for duplicate names, and for critical extensions.
    """
    try:
        if len(part) > _LONGEST_HEADER:
            raise ValueError("too long")
        header = json.loads(decode_part(part), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise MalformedToken("the header of the token is malformed") from None
    if not isinstance(header, dict):
        raise MalformedToken("the header of the token is not an object")
    if "crit" in header or header.get("b64", True) is not True:
        raise MalformedToken("the header of the token requires unsupported extensions")
    algorithm, key = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not isinstance(key, str | None):
        raise MalformedToken("the header of the token has no algorithm, or its key ID is not a string")
    return Header(algorithm, key or "")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate name")
    return found
