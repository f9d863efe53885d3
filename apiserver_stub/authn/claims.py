"""The claims of a service account token, and the checks of what holds at a moment; pure."""

from collections.abc import Sequence

from msgspec import Struct, field

from controller_manager.serving.authentication import AUTHENTICATED, User

LEEWAY = 60.0
"""Seconds that clocks may differ by, and that what was deleted still counts."""
_ACCOUNTS = "system:serviceaccounts"
_EXTRA = "authentication.kubernetes.io"


class Reference(Struct, frozen=True, omit_defaults=True):
    """An object, and which of its name."""

    name: str
    uid: str = ""


class Subject(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The service account that a token is for, the objects it is bound to, and the moment after which its use is worth
    a warning (seconds since the epoch).
    """

    namespace: str
    node: Reference | None = None
    pod: Reference | None = None
    secret: Reference | None = None
    account: Reference = field(name="serviceaccount")
    warn_after: int | None = field(name="warnafter", default=None)


class Claims(Struct, frozen=True, kw_only=True):
    """The registered claims (RFC 7519, section 4.1) and those of the platform; times are seconds since the epoch."""

    audiences: str | tuple[str, ...] = field(name="aud")
    expires: int = field(name="exp")
    issued: int = field(name="iat", default=0)
    issuer: str = field(name="iss")
    identifier: str = field(name="jti", default="")
    subject: Subject = field(name="kubernetes.io")
    not_before: int = field(name="nbf", default=0)
    username: str = field(name="sub")


class Existing(Struct, frozen=True):
    """An object that must exist for a token to be good: a row of the store, with this uid."""

    storage: str
    key: str
    uid: str


def username(namespace: str, name: str) -> str:
    """Return the user that a service account is."""
    return f"system:serviceaccount:{namespace}:{name}"


def user_of(claims: Claims) -> User:
    """Return the user whom claims name, with what is known of the token beside."""
    subject, extra = claims.subject, {}
    if claims.identifier:
        extra["credential-id"] = f"JTI={claims.identifier}"
    if subject.pod:
        extra |= {"pod-name": subject.pod.name, "pod-uid": subject.pod.uid}
    if subject.node:
        extra |= {"node-name": subject.node.name, "node-uid": subject.node.uid}
    return User(
        username(subject.namespace, subject.account.name),
        subject.account.uid,
        (_ACCOUNTS, f"{_ACCOUNTS}:{subject.namespace}", AUTHENTICATED),
        {f"{_EXTRA}/{name}": (value,) for name, value in extra.items() if value},
    )


def needs(subject: Subject) -> tuple[Existing, ...]:
    """Return what must exist: the account and what the token is bound to; the node of a bound pod is only told."""
    named = (
        ("serviceaccounts", subject.namespace, subject.account),
        ("secrets", subject.namespace, subject.secret),
        ("pods", subject.namespace, subject.pod),
        ("nodes", "", None if subject.pod else subject.node),
    )
    return tuple(
        Existing(storage, f"{namespace}/{one.name}" if namespace else one.name, one.uid)
        for storage, namespace, one in named
        if one is not None
    )


def untimely(claims: Claims, now: float) -> str:
    """Return why the claims do not hold at this moment; empty if they do."""
    if now - LEEWAY > claims.expires:
        return "the service account token has expired"
    if now + LEEWAY < max(claims.not_before, claims.issued):
        return "the service account token is not valid yet"
    return ""


def shared(wanted: Sequence[str], offered: str | Sequence[str]) -> tuple[str, ...]:
    """Return the audiences that are both wanted and offered."""
    offered = (offered,) if isinstance(offered, str) else offered
    return tuple(one for one in wanted if one in offered)
