"""The token subresource of service accounts: tokens are issued on request and not stored."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from msgspec.structs import replace

from apiserver_stub.authn.tokens import Claims, Reference, TokenSubject, username
from apiserver_stub.encode.json import encode, in_order
from apiserver_stub.kinds.resource_info import Subresource
from apiserver_stub.kinds.strategies.token_request import (
    LONGEST,
    NODES,
    Bindable,
    BoundTo,
    TokenSpec,
    answered,
    bindable,
    life,
    problems,
    read_spec,
)
from apiserver_stub.request.api_request import APIRequest, Item, Reply
from apiserver_stub.request.audit import annotate
from apiserver_stub.verbs.decode import read_body
from apiserver_stub.verbs.preconditions import object_not_found
from apiserver_stub.verbs.scope import RequestScope
from apiserver_stub.verbs.storage import key_of
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import BadRequest, Cause, conflict, invalid, not_found
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.random import random_source


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of issued tokens: the issuer, the default audiences and the maximum lifetime in seconds (0: no limit).
    `extend` gives tokens of pods a longer lifetime than requested, up to `longest_extended` seconds.
    """

    issuer: str
    audiences: tuple[str, ...]
    longest: int
    extend: bool
    longest_extended: int = LONGEST


class TokenRequests:
    """Issues tokens on the terms that `terms` returns. `sign` creates a token from its claims."""

    def __init__(self, terms: Callable[[], Terms], sign: Callable[[Claims], Awaitable[str]]) -> None:
        self._terms = terms
        self._sign = sign

    async def create(self, scope: RequestScope, request: APIRequest) -> Reply:
        """Issue a token and return the request with it. Raises `NotFound`, `Invalid`, `BadRequest`, and `Conflict` if
        the account or the bound object has another uid than requested.
        """
        subresource = request.subresource
        assert subresource is not None
        tree, warnings = await read_body(scope, request, named=False, completed=_with_defaults)
        check = partial(_check, scope, request, subresource, tree)
        warnings = (*warnings, *await scope.admit(request, "create", tree, check=check))
        spec, account = read_spec(tree), _account(scope, request)
        subject = _bind(scope, request, spec.bound_object_ref, account.field("metadata.uid"))
        spec, shortened = self._granted(spec)
        now = utc_now()
        claims = self._claims(spec, subject, int(now.timestamp()))
        annotate(f"authentication.{PLATFORM_DOMAIN}/issued-credential-id", f"JTI={claims.identifier}")
        expires = format_time(now + timedelta(seconds=spec.expiration_seconds))
        tree["metadata"] |= {"uid": account.field("metadata.uid"), "creationTimestamp": format_time(now)}
        granted = answered(
            _typed(tree, subresource), spec, {"token": await self._sign(claims), "expirationTimestamp": expires}
        )
        return Reply(Item(encode(in_order(granted))), 201, (*warnings, *shortened))

    def _granted(self, spec: TokenSpec) -> tuple[TokenSpec, tuple[str, ...]]:
        """Return the spec that is granted, and a warning if the lifetime was shortened."""
        terms = self._terms()
        asked, longest = spec.expiration_seconds, terms.longest
        spec = replace(spec, audiences=spec.audiences or terms.audiences)
        if not longest or asked <= longest:
            return spec, ()
        warning = f"requested expiration of {asked} seconds shortened to {longest} seconds"
        return replace(spec, expiration_seconds=longest), (warning,)

    def _claims(self, spec: TokenSpec, subject: TokenSubject, now: int) -> Claims:
        terms = self._terms()
        ours = set(spec.audiences) <= set(terms.audiences)
        seconds, warn = life(spec, extended=terms.extend and ours and subject.pod is not None)
        seconds = min(seconds, terms.longest_extended)
        return Claims(
            audiences=spec.audiences,
            expires=now + seconds,
            issued=now,
            issuer=terms.issuer,
            identifier=random_source().uid(),
            subject=replace(subject, warn_after=None if warn is None else now + warn),
            not_before=now,
            username=username(subject.namespace, subject.account.name),
        )


def _check(scope: RequestScope, request: APIRequest, subresource: Subresource, tree: Tree) -> None:
    """Check a request against its account and the rules of its kind. Raises `NotFound`, `Conflict` or `Invalid`."""
    metadata, group, kind = tree["metadata"], subresource.group, subresource.kind
    name = metadata["name"] = metadata.get("name") or request.name
    if name != request.name:
        message = f'Invalid value: "{name}": must be the name of the service account'
        cause = Cause(reason="FieldValueInvalid", message=message, field="metadata.name")
        raise invalid(group, kind, request.name, [cause])
    uid = _account(scope, request).field("metadata.uid")
    if metadata.get("uid") not in (None, "", uid):
        why = f"the request is for a service account with the UID {metadata['uid']}, and this one has the UID {uid}"
        raise conflict(group, kind, request.name, why)
    if causes := problems(read_spec(tree)):
        raise invalid(group, kind, "", causes)


def _account(scope: RequestScope, request: APIRequest) -> Row:
    """Return the service account of a request. Raises `NotFound`."""
    row = scope.store.get(request.kind.storage, key_of(request.kind, request.namespace, request.name))
    if row is None:
        raise object_not_found(request)
    return row


def _with_defaults(tree: Tree) -> Tree:
    left_open = {"audiences": None, "expirationSeconds": TokenSpec().expiration_seconds, "boundObjectRef": None}
    spec = {**left_open, **tree.get("spec", {})}
    return {**tree, "spec": spec, "status": {"token": "", "expirationTimestamp": None}}


def _bind(scope: RequestScope, request: APIRequest, ref: BoundTo | None, uid: str) -> TokenSubject:
    """Return the subject of the token and the object that it is bound to."""
    subject = TokenSubject(namespace=request.namespace, account=Reference(request.name, uid))
    if ref is None:
        return subject
    of = bindable(ref)
    row = _find(scope, of, request.namespace, ref.name)
    if row is None:
        raise not_found("", of.storage, ref.name)
    if of.runs_as and row.field(of.runs_as) != request.name:
        raise BadRequest(f'the {ref.kind} "{ref.name}" does not run as the service account "{request.name}"')
    found = row.field("metadata.uid")
    if ref.uid not in ("", found):
        given = f"the UID in the bound object reference ({ref.uid})"
        why = f"{given} does not match its current UID; it may have been recreated"
        raise conflict("", ref.kind, ref.name, why)
    bound = {of.claim: Reference(ref.name, found)}
    node = row.field(of.runs_on) if of.runs_on else ""
    if node:
        there = _find(scope, NODES, "", node)
        bound[NODES.claim] = Reference(node, there.field("metadata.uid") if there else "")
    return replace(subject, **bound)


def _find(scope: RequestScope, of: Bindable, namespace: str, name: str) -> Row | None:
    return scope.store.get(of.storage, f"{namespace}/{name}" if of.namespaced else name)


def _typed(tree: dict[str, object], subresource: Subresource) -> dict[str, object]:
    return {**tree, "apiVersion": f"{subresource.group}/{subresource.version}", "kind": subresource.kind}
