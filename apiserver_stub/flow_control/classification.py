"""Classification: the FlowSchema and the flow of a request (KEP-1040, Matching); pure."""

from collections.abc import Iterable, Sequence
from hashlib import sha256

from apiserver_stub.flow_control.configuration import (
    CATCH_ALL,
    EXEMPT,
    FlowResourceRule,
    FlowRule,
    FlowSchema,
    FlowSubject,
    NonResourceRule,
    in_order,
    mandatory,
)
from apiserver_stub.request.request_info import RequestInfo
from controller_manager.common.serving.authentication import User

_ACCOUNT = "system:serviceaccount:"


def usable_schemas(schemas: Iterable[FlowSchema], levels: Iterable[str]) -> list[FlowSchema]:
    """Return the schemas with an existing level in matching order, always including the mandatory ones."""
    existing = frozenset(levels)
    found = in_order(schema for schema in schemas if schema.level in existing)
    names = {schema.name for schema in found}
    _, always = mandatory()
    first = [] if EXEMPT in names else [always[EXEMPT]]
    last = [] if CATCH_ALL in names else [always[CATCH_ALL]]
    return [*first, *found, *last]


def classify(schemas: Sequence[FlowSchema], info: RequestInfo, user: User) -> FlowSchema:
    """Return the first schema that matches a request; the catch-all if none does."""
    for schema in schemas:
        if any(_matches(rule, info, user) for rule in schema.spec.rules):
            return schema
    return next(schema for schema in schemas if schema.name == CATCH_ALL)


def distinguisher(schema: FlowSchema, info: RequestInfo, user: User) -> str:
    """Return the name of the flow within its schema."""
    method = schema.spec.distinguisher_method
    if method is None:
        return ""
    return user.name if method.type == "ByUser" else info.namespace


def named_namespaces(schemas: Iterable[FlowSchema]) -> frozenset[str]:
    """Return the namespaces that any schema names; all other namespaces are classified the same way."""
    rules = (rule for schema in schemas for each in schema.spec.rules for rule in each.resource_rules)
    return frozenset(namespace for rule in rules for namespace in rule.namespaces)


def flow_hash(schema: str, flow: str) -> int:
    """Return the 64 bits that decide on the queues of a flow."""
    return int.from_bytes(sha256(f"{schema}\0{flow}".encode("utf-8", "surrogatepass")).digest()[:8], "little")


def deal(deck: int, hand: int, entropy: int) -> tuple[int, ...]:
    """Return distinct cards below `deck`, each chosen by a remainder among the remaining ones (shuffle sharding).

    All servers deal the same hand for the same entropy.
    """
    cards: list[int] = []
    for left in range(deck, deck - hand, -1):
        entropy, card = divmod(entropy, left)
        for other in sorted(cards):
            card += card >= other
        cards.append(card)
    return tuple(cards)


def _matches(rule: FlowRule, info: RequestInfo, user: User) -> bool:
    if not any(_is(subject, user) for subject in rule.subjects):
        return False
    if info.resource:
        return any(_resource_matches(each, info) for each in rule.resource_rules)
    return any(_path_matches(each, info) for each in rule.non_resource_rules)


def _is(subject: FlowSubject, user: User) -> bool:
    if subject.kind == "User":
        return subject.user is not None and subject.user.name in ("*", user.name)
    if subject.kind == "Group":
        return subject.group is not None and (subject.group.name == "*" or subject.group.name in user.groups)
    account = subject.service_account
    if account is None:
        return False
    prefix = f"{_ACCOUNT}{account.namespace}:"
    return user.name.startswith(prefix) if account.name == "*" else user.name == prefix + account.name


def _resource_matches(rule: FlowResourceRule, info: RequestInfo) -> bool:
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    if not (_has(rule.verbs, info.verb) and _has(rule.resources, resource) and _has(rule.api_groups, info.group)):
        return False
    return _has(rule.namespaces, info.namespace) if info.namespace else rule.cluster_scope


def _path_matches(rule: NonResourceRule, info: RequestInfo) -> bool:
    return _has(rule.verbs, info.verb) and any(_covers(pattern, info.path) for pattern in rule.non_resource_urls)


def _covers(pattern: str, path: str) -> bool:
    """Return whether a pattern is the path or a parent of it."""
    return pattern in ("*", path) or path.startswith(f"{pattern.removesuffix('*').removesuffix('/')}/")


def _has(wanted: tuple[str, ...], value: str) -> bool:
    """Return whether a list contains a value; `*` matches all values only if it is the single entry."""
    return wanted == ("*",) or value in wanted
