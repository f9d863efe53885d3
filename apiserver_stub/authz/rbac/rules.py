"""The compiled rules of roles: permission checks, and whether they cover other rules."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from controller_manager.common.api.rbac import RoleRule

ALL = "*"
NO_NAMES: frozenset[str] = frozenset()


class _Permit(Struct, frozen=True, gc=False):
    """Verbs of a rule on resources of groups; `names` is None for objects of all names."""

    verbs: frozenset[str]
    groups: frozenset[str]
    names: frozenset[str] | None

    def covers(self, verb: str, group: str) -> bool:
        """Return whether verb and group match."""
        verbs, groups = self.verbs, self.groups
        return (verb in verbs or ALL in verbs) and (group in groups or ALL in groups)


class _Paths(Struct, frozen=True, gc=False):
    """Verbs of a rule on paths and path prefixes (`beginnings`)."""

    verbs: frozenset[str]
    exact: frozenset[str]
    beginnings: tuple[str, ...]

    def covers(self, verb: str, path: str) -> bool:
        """Return whether verb and path match."""
        return (verb in self.verbs or ALL in self.verbs) and (path in self.exact or path.startswith(self.beginnings))


def meant_by(resource: str) -> tuple[str, ...]:
    """Return the resource names in rules that match a resource: itself, `*`, and `*/subresource` for a subresource."""
    return (resource, ALL, f"*/{resource.partition('/')[2]}") if "/" in resource else (resource, ALL)


class RoleRules:
    """The rules of a role, indexed for lookup."""

    __slots__ = ("_paths", "_resources", "rules")

    def __init__(self, rules: Sequence[RoleRule]) -> None:
        self.rules = tuple(rules)
        self._resources: dict[str, list[_Permit]] = {}
        self._paths: list[_Paths] = []
        for rule in self.rules:
            self._add(rule)

    def _add(self, rule: RoleRule) -> None:
        verbs, urls = frozenset(rule.verbs), rule.non_resource_urls
        names = frozenset(rule.resource_names) if rule.resource_names else None
        if rule.resources and rule.api_groups:
            permit = _Permit(verbs, frozenset(rule.api_groups), names)
            for resource in dict.fromkeys(rule.resources):
                self._resources.setdefault(resource, []).append(permit)
        if urls:
            beginnings = tuple(url.rstrip(ALL) for url in urls if url.endswith(ALL))
            self._paths.append(_Paths(verbs, frozenset(urls), beginnings))

    def names(self, verb: str, group: str, resource: str) -> frozenset[str] | None:
        """Return the names of objects on which a verb is allowed, None for all; `resource` may be `*` or include a
        subresource (`pods/log`, `*/scale`).
        """
        return self.names_by(verb, group, meant_by(resource))

    def names_by(self, verb: str, group: str, resources: tuple[str, ...]) -> frozenset[str] | None:
        """Return the same for the resources that `meant_by` returns."""
        found, permits_of = NO_NAMES, self._resources
        for resource in resources:
            if resource in permits_of:
                for permit in permits_of[resource]:
                    if permit.covers(verb, group):
                        if permit.names is None:
                            return None
                        found |= permit.names
        return found

    @property
    def has_paths(self) -> bool:
        """Whether any rule is about paths."""
        return bool(self._paths)

    def allows_path(self, verb: str, path: str) -> bool:
        """Return whether a verb is allowed on a path."""
        return any(paths.covers(verb, path) for paths in self._paths)

    def covers(self, part: RoleRule) -> bool:
        """Return whether a single rule allows a part created by `parts`."""
        (verb,) = part.verbs
        if part.non_resource_urls:
            return self.allows_path(verb, part.non_resource_urls[0])
        names = self.names(verb, part.api_groups[0], part.resources[0])
        return names is None or (bool(part.resource_names) and part.resource_names[0] in names)

    def covers_all(self, rule: RoleRule) -> bool:
        """Return whether a rule is covered without looking at its parts, because everything is allowed."""
        return all(self._is_allowed_everywhere(verb, rule) for verb in rule.verbs)

    def _is_allowed_everywhere(self, verb: str, rule: RoleRule) -> bool:
        resources = not rule.resources or self.names(verb, ALL, ALL) is None
        return resources and (not rule.non_resource_urls or self.allows_path(verb, ALL))


def count_parts(rules: Iterable[RoleRule]) -> int:
    """Return how many parts rules have, without making them."""
    return sum(
        len(rule.verbs)
        * (
            len(rule.api_groups) * len(rule.resources) * max(1, len(rule.resource_names))
            + len(rule.non_resource_urls)
        )
        for rule in rules
    )  # fmt: skip


def parts(rules: Iterable[RoleRule]) -> Iterator[RoleRule]:
    """Split rules into parts: one verb on one resource of one group, for one name or all, or on one path. A single rule
    covers a part completely or not at all.
    """
    for rule in rules:
        named: list[tuple[str, ...]] = [(name,) for name in rule.resource_names] or [()]
        for group in rule.api_groups:
            for resource in rule.resources:
                for verb in rule.verbs:
                    for names in named:
                        yield RoleRule(verbs=(verb,), api_groups=(group,), resources=(resource,), resource_names=names)
        for url in rule.non_resource_urls:
            for verb in rule.verbs:
                yield RoleRule(verbs=(verb,), non_resource_urls=(url,))


def compact(rules: Iterable[RoleRule]) -> list[RoleRule]:
    """Merge parts of rules with the same resource and name; those for paths are not merged."""
    paths: list[RoleRule] = []
    merged: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for rule in rules:
        if rule.non_resource_urls:
            paths.append(rule)
        else:
            merged.setdefault((rule.api_groups, rule.resources, rule.resource_names), []).extend(rule.verbs)
    together = [
        RoleRule(verbs=tuple(verbs), api_groups=groups, resources=resources, resource_names=names)
        for (groups, resources, names), verbs in merged.items()
    ]
    return [*paths, *together]
