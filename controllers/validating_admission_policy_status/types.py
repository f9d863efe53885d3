"""Which kinds of objects a policy is about, as its rules name them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from controller_manager.common.api.admissionregistration import ParamKind, ResourceRule, ValidatingAdmissionPolicySpec
from controller_manager.common.api.errors import ServiceUnavailable
from controller_manager.common.api.model import PartialObject
from controller_manager.common.api.resource import Resource
from controller_manager.framework import Client
from controller_manager.framework.client.discovery import Discovery, ServedResource, resources

_Named = tuple[str, str, str]  # group, version and plural
MOST = 10
"""The most kinds that the expressions of one rule are checked against."""


class GroupVersionKind(NamedTuple):
    """A kind of objects in a version."""

    group: str
    version: str
    kind: str

    @property
    def path(self) -> str:
        """Return where its version is described, below `/openapi/v3/`."""
        return f"apis/{self.group}/{self.version}" if self.group else f"api/{self.version}"

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


class Kinds:
    """The kinds that policies are about; discovery is asked again, once for a policy, where it lacks something."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._served: Sequence[ServedResource] = ()

    async def of(self, spec: ValidatingAdmissionPolicySpec) -> Sequence[GroupVersionKind]:
        """Return the kinds in the order of group, version and kind. Raises ServiceUnavailable where one may be missing
        only since discovery could not be read.
        """
        rules = spec.match_constraints.resource_rules
        named = {wanted for rule in rules for wanted in _named(rule)}
        if self._lacks(named):
            found = await resources(self._client)
            for wanted in sorted(named):
                if _may_lack(found, wanted):
                    raise ServiceUnavailable(f"discovery does not list {wanted[2]} at present")
            self._served = found.resources
        return kinds_of(rules, self._served)

    def _lacks(self, named: Iterable[_Named]) -> bool:
        return not all(_served(wanted, self._served) for wanted in named)


def _may_lack(found: Discovery, wanted: _Named) -> bool:
    """Return whether discovery may be incomplete for a resource: the resource itself is missing, or for the core group,
    the same name in another group. A single unreadable group does not count for the latter: some are never readable.
    """
    group, version, plural = wanted
    if not group and "/apis" in found.failures:
        return True
    resource = Resource(group, version, plural, "", True, PartialObject)
    return not _served(wanted, found.resources) and found.may_lack(resource)


def kinds_of(rules: Iterable[ResourceRule], served: Iterable[ServedResource]) -> Sequence[GroupVersionKind]:
    """Return the kinds that rules name. The search stops at the first rule with `MOST` kinds."""
    there, found = tuple(served), set[GroupVersionKind]()
    for rule in rules:
        count = 0
        for wanted in _named(rule):
            for kind in _served(wanted, there):
                found.add(kind)
                count += 1
                if count == MOST:
                    return sorted(found)
    return sorted(found)


def param_kind(kind: ParamKind) -> GroupVersionKind:
    """Return the kind of parameters."""
    group, _, version = kind.api_version.rpartition("/")
    return GroupVersionKind(group, version, kind.kind)


def _named(rule: ResourceRule) -> Iterator[_Named]:
    """Yield group, version and plural of the resources that a rule names, none of those with wildcards."""
    if any("*" in each for each in (*rule.api_groups, *rule.api_versions)):
        return
    plurals = sorted(each for each in rule.resources if "*" not in each and "/" not in each)
    for group in sorted(rule.api_groups):
        for version in sorted(rule.api_versions):
            for plural in plurals:
                yield group, version, plural


def _served(wanted: _Named, served: Iterable[ServedResource]) -> list[GroupVersionKind]:
    """Return the kinds of a resource, which in the core group is looked for in all groups, as kubectl does."""
    group, version, plural = wanted
    return [
        GroupVersionKind(each.group, each.version, each.kind)
        for each in (found.resource for found in served)
        if each.version == version and each.plural == plural and group in ("", each.group)
    ]
