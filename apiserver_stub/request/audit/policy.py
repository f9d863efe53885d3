"""The audit policy (audit.k8s.io/v1, Policy): the audit level of each request."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from apiserver_stub.common.config_file import ConfigDocument, ConfigFileError, ConfigModel, read_config, refuse_causes
from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.values.names import subdomain
from apiserver_stub.request.audit.events import LEVELS, STAGES, VERSION, AuditStage, Level
from apiserver_stub.request.request_info import RequestInfo
from controller_manager.common.serving.authentication import User

_MOST_REMEMBERED = 4096  # choices of rules


class GroupResources(ConfigModel):
    """Resources of an API group: `pods`, `pods/log`, `pods/*`, `*/scale`, or `*` for all. Without `resources`, all
    resources of the group match.
    """

    group: str = ""
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()


class PolicyRule(ConfigModel):
    """A rule: requests that match all its fields are audited at its level. The namespace `` matches cluster-scoped
    objects.
    """

    level: str = ""
    users: tuple[str, ...] = ()
    user_groups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resources: tuple[GroupResources, ...] = ()
    namespaces: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")
    omit_stages: tuple[str, ...] = ()
    omit_managed_fields: bool | None = None


class AuditPolicy(ConfigDocument):
    """The rules; the first match applies. Requests without a match are not audited."""

    metadata: Mapping[str, Any] = {}
    rules: tuple[PolicyRule, ...] = ()
    omit_stages: tuple[str, ...] = ()
    omit_managed_fields: bool = False


class Coverage(Struct, frozen=True):
    """The audit settings of a request: level, omitted stages, and whether objects omit `managedFields`."""

    level: Level = Level.NONE
    omitted: tuple[AuditStage, ...] = ()
    omit_managed_fields: bool = False


_NOTHING = Coverage()


def read_policy(path: Path) -> AuditPolicy:
    """Return the policy in a file. Raises `ConfigFileError` with all validation errors."""
    policy = read_config(path, "Policy", {VERSION: AuditPolicy})
    errors = ErrorList()
    _judge_stages(errors, policy.omit_stages, (None, "omitStages"))
    for index, rule in enumerate(policy.rules):
        _judge(errors, rule, ((None, "rules"), index))
    refuse_causes(path, errors.causes)
    if not policy.rules:
        raise ConfigFileError(f"{path}: rules: there must be at least one")
    return policy


_Rule = tuple[PolicyRule, Coverage, bool]  # and whether it matches all users and all objects of its resources


class PolicyEvaluator:
    """Finds the rule for a request. The candidate rules are cached per verb and resource or path."""

    def __init__(self, policy: AuditPolicy) -> None:
        self._rules = [(rule, _coverage(policy, rule), _is_for_all(rule)) for rule in policy.rules]
        self._of_resource = lru_cache(_MOST_REMEMBERED)(self._choose_of_resource)
        self._of_path = lru_cache(_MOST_REMEMBERED)(self._choose_of_path)

    def evaluate(self, info: RequestInfo, user: User | None) -> Coverage:
        """Return the audit settings of a request; `user` is None for an unauthenticated caller."""
        if not info.resource:
            rules = self._of_path(info.verb, info.path)
        else:
            rules = self._of_resource(info.verb, info.group, info.resource, info.subresource)
        for rule, coverage, always in rules:
            if always or (_is_of(rule, user) and (not info.resource or _is_about(rule, info))):
                return coverage
        return _NOTHING

    def _choose_of_path(self, verb: str, path: str) -> tuple[_Rule, ...]:
        def fits(rule: PolicyRule) -> bool:
            if rule.namespaces or rule.resources or (rule.verbs and verb not in rule.verbs):
                return False
            return not rule.non_resource_urls or any(_leads_to(url, path) for url in rule.non_resource_urls)

        return tuple(each for each in self._rules if fits(each[0]))

    def _choose_of_resource(self, verb: str, group: str, resource: str, subresource: str) -> tuple[_Rule, ...]:
        def fits(rule: PolicyRule) -> bool:
            if rule.verbs and verb not in rule.verbs:
                return False
            if not rule.resources:
                return bool(rule.namespaces) or not rule.non_resource_urls
            return any(_covers(one, group, resource, subresource) for one in rule.resources)

        return tuple(each for each in self._rules if fits(each[0]))


def _coverage(policy: AuditPolicy, rule: PolicyRule) -> Coverage:
    omit = policy.omit_managed_fields if rule.omit_managed_fields is None else rule.omit_managed_fields
    omitted = tuple({STAGES[stage] for stage in (*policy.omit_stages, *rule.omit_stages)})
    return Coverage(LEVELS[rule.level], omitted, omit)


def _is_for_all(rule: PolicyRule) -> bool:
    named = any(one.resource_names for one in rule.resources)
    return not (rule.users or rule.user_groups or rule.namespaces or named)


def _is_of(rule: PolicyRule, user: User | None) -> bool:
    """Return whether a rule is about a user."""
    if rule.users and (user is None or user.name not in rule.users):
        return False
    return not rule.user_groups or (user is not None and not set(rule.user_groups).isdisjoint(user.groups))


def _is_about(rule: PolicyRule, info: RequestInfo) -> bool:
    """Return whether a rule for such resources matches namespace and name of a request."""
    if rule.namespaces and info.namespace not in rule.namespaces:
        return False
    if not any(one.resource_names for one in rule.resources):
        return True
    return any(
        (not one.resource_names or info.name in one.resource_names)
        and _covers(one, info.group, info.resource, info.subresource)
        for one in rule.resources
    )


def _covers(resources: GroupResources, group: str, resource: str, subresource: str) -> bool:
    if resources.group not in (group, "*"):
        return False
    whole = f"{resource}/{subresource}" if subresource else resource
    wanted = ("*", whole, f"{resource}/*", f"*/{subresource}" if subresource else "*")
    return not resources.resources or any(one in wanted for one in resources.resources)


def _leads_to(url: str, path: str) -> bool:
    return url in ("*", path) or (url.endswith("*") and path.startswith(url.rstrip("*")))


def _judge(errors: ErrorList, rule: PolicyRule, at: FieldPath) -> None:
    """Add the validation errors of a rule."""
    if not rule.level:
        errors.required((at, "level"))
    elif rule.level not in LEVELS:
        errors.unsupported((at, "level"), rule.level, LEVELS)
    for index, url in enumerate(rule.non_resource_urls):
        _judge_url(errors, url, ((at, "nonResourceURLs"), index))
    for resources in rule.resources:
        _judge_resources(errors, resources, (at, "resources"))
    _judge_stages(errors, rule.omit_stages, (at, "omitStages"))
    if rule.non_resource_urls and (rule.resources or rule.namespaces):
        why = "a rule is about resources or about other URLs, not about both"
        errors.invalid((at, "nonResourceURLs"), list(rule.non_resource_urls), why)


def _judge_url(errors: ErrorList, url: str, at: FieldPath) -> None:
    if url == "*":
        return
    if not url.startswith("/"):
        errors.invalid(at, url, "the URL must begin with a slash")
    if "*" in url[:-1]:
        errors.invalid(at, url, "only the last character may be an asterisk")


def _judge_resources(errors: ErrorList, resources: GroupResources, at: FieldPath) -> None:
    if resources.group not in ("", "*") and (problem := subdomain(resources.group)):
        errors.invalid((at, "group"), resources.group, problem)
    if resources.resource_names and not resources.resources:
        errors.invalid((at, "resourceNames"), list(resources.resource_names), "names need at least one resource")


def _judge_stages(errors: ErrorList, stages: tuple[str, ...], at: FieldPath) -> None:
    for index, stage in enumerate(stages):
        if stage not in STAGES:
            errors.invalid((at, index), stage, f"the stages are {', '.join(STAGES)}")
