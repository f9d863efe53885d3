"""The plugin ResourceQuota: the usage that a write adds is recorded in the quotas of its namespace in the same
transaction.

Usage is checked during admission, and again against the quota at commit time: many writers of a namespace share a
transaction, and if another server was faster, the check is repeated. So no quota is ever exceeded, and a failed write
records no usage.
"""

from collections.abc import Awaitable, Collection, Container, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import orjson

from apiserver_stub.admission.chain import ALL, AdmissionPlugin, Admit, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.common.config_file import ConfigDocument, ConfigModel
from apiserver_stub.common.error_list import ErrorList
from apiserver_stub.common.offload import StepRunner, at_once
from apiserver_stub.encode.json import encode, in_order
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.joint_commits import Amend
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import ApiError, UnknownError
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.pod_resources import Amounts, parsed, plus
from controller_manager.common.api.quantity import Quantity
from controller_manager.common.api.quota import (
    NOT_COUNTED,
    RESOURCE_CLAIMS,
    DeviceClasses,
    Evaluator,
    Evaluators,
    Measured,
    QuotaScope,
    is_terminating,
    scopes_of,
)
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import utc_now

NAME = "ResourceQuota"
QUOTAS = "resourcequotas"
_DEVICE_CLASSES = f"deviceclasses.resource.{GROUP_DOMAIN}"
_MOST_READ = 4096  # cached decoded quotas
_MANY = 200  # containers and amounts of a pod that take a millisecond to count


class LimitedScope(ConfigModel):
    """A scope that may be used only if a quota covers it."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LimitedResource(ConfigModel):
    """Objects that may be created only if a quota limits their resources that contain one of the words, or covers their
    scopes.
    """

    resource: str = ""
    api_group: str = ""
    match_contains: tuple[str, ...] = ()
    match_scopes: tuple[LimitedScope, ...] = ()


class ResourceQuotaConfiguration(ConfigDocument):
    """The configuration of the plugin."""

    kind: str = "ResourceQuotaConfiguration"
    limited_resources: tuple[LimitedResource, ...] = ()


class OldResourceQuotaConfiguration(ResourceQuotaConfiguration):
    """The same document under its former name."""

    kind: str = "Configuration"


CONFIGURATION_TYPES: Mapping[str, type[ResourceQuotaConfiguration]] = {
    f"apiserver.config.{GROUP_DOMAIN}/v1": ResourceQuotaConfiguration,
    f"resourcequota.admission.{GROUP_DOMAIN}/v1beta1": OldResourceQuotaConfiguration,
    f"resourcequota.admission.{GROUP_DOMAIN}/v1alpha1": OldResourceQuotaConfiguration,
}
"""By API version."""


def check(configuration: ResourceQuotaConfiguration) -> ErrorList:
    """Return the validation errors of a configuration."""
    errors = ErrorList()
    for number, one in enumerate(configuration.limited_resources):
        if not one.resource:
            errors.required((((None, "limitedResources"), number), "resource"))
    return errors


class Limited(NamedTuple):
    """Resources that may be used only if a quota covers them: of the objects of one kind, and scopes."""

    resource: str
    words: Sequence[str]
    scopes: Sequence[QuotaScope]


class Quota(NamedTuple):
    """A quota with its last recorded usage. `uncounted` are resources whose limit was added after that."""

    name: str
    hard: Amounts
    used: Amounts
    scopes: Sequence[QuotaScope]
    uncounted: frozenset[str] = frozenset()


def decide(
    quotas: Sequence[Quota], attributes: Attributes, evaluator: Evaluator, limited: Sequence[Limited] = ()
) -> Mapping[str, Amounts]:
    """Return the usage that a write adds, by quota name. Quotas that are not counted yet are included, so that a
    concurrent count without this object conflicts. Raises `Forbidden` if the usage exceeds a quota.

    | a quota whose scopes match, and that limits a resource counted for the object  | then                      |
    |--------------------------------------------------------------------------------|---------------------------|
    | the object does not set all required resources                                 | rejected                  |
    | one of these resources was not counted yet                                     | rejected                  |
    | the usage does not grow, or does not count for this quota                      | nothing is added          |
    | the usage would exceed the limit                                               | rejected, except for a    |
    |                                                                                | status update             |
    """
    now = utc_now()
    new = evaluator.measure(attributes.tree)
    matching = [quota for quota in quotas if new.is_in_all(quota.scopes) and any(map(evaluator.counts, quota.hard))]
    for quota in matching:
        _check_known(quota, attributes, evaluator)
    usage = new.usage_at(now)
    if negative := sorted(name for name, amount in usage.items() if amount.number < 0):
        raise attributes.refused(f"quota usage is negative for resource(s): {','.join(negative)}")
    old = None if attributes.old_object is None else evaluator.measure(attributes.old_object)
    grown = usage if old is None else beyond(usage, old.usage_at(now))

    def growth_in(quota: Quota) -> Amounts:
        return usage if old and not old.is_in_all(quota.scopes) else grown

    uncounted = [quota for quota in quotas if quota.uncounted and new.is_in_all(quota.scopes)]
    awaited = {one.name: found for one in uncounted if (found := _within(growth_in(one), one.uncounted))}
    growth = [growth_in(quota) for quota in matching]
    if not any(map(_is_something, growth or (grown,))):
        return awaited
    if limited:
        _check_covered(quotas, matching, (new, usage), attributes, evaluator, limited)
    added = {quota.name: _within(amounts, quota.hard) for quota, amounts in zip(matching, growth, strict=True)}
    if attributes.subresource != "status":
        for quota in matching:
            _check_fits(quota, added[quota.name], attributes)
    for name, amounts in added.items():
        if amounts:
            awaited[name] = {**awaited.get(name, {}), **amounts}
    return awaited


def beyond(new: Amounts, old: Amounts) -> Amounts:
    """Return the growth of each amount; zero if it does not grow."""
    return {name: _less(amount, old.get(name)) for name, amount in new.items()}


def _less(amount: Quantity, before: Quantity | None) -> Quantity:
    return amount if before is None else amount._replace(number=max(amount.number - before.number, amount.number * 0))


def _is_something(amounts: Amounts) -> bool:
    return any(amount.number for amount in amounts.values())


def _within(amounts: Amounts, names: Container[str]) -> Amounts:
    """Return the nonzero amounts of these resources."""
    return {name: amount for name, amount in amounts.items() if amount.number and name in names}


def _check_known(quota: Quota, attributes: Attributes, evaluator: Evaluator) -> None:
    names = sorted(filter(evaluator.counts, quota.hard))
    if unsaid := evaluator.unsaid(attributes.tree, names):
        raise attributes.refused(f"failed quota: {quota.name}: {unsaid}")
    if not quota.used.keys() >= set(names):
        raise _unknown(quota, names, attributes)


def _unknown(quota: Quota, names: Sequence[str], attributes: Attributes) -> ApiError:
    return attributes.refused(f"status unknown for quota: {quota.name}, resources: {','.join(names)}")


def _check_covered(
    quotas: Sequence[Quota],
    matching: Sequence[Quota],
    new: tuple[Measured, Amounts],
    attributes: Attributes,
    evaluator: Evaluator,
    limited: Sequence[Limited],
) -> None:
    """Raises `Forbidden` for a limited resource without a quota, an error of the server for a limited scope without
    one, as kube-apiserver does.
    """
    measured, usage = new
    words = [word for one in limited if one.resource == attributes.kind.name for word in one.words]
    needed = {name for name, amount in usage.items() if amount.number > 0 and any(word in name for word in words)}
    covered = {name for quota in matching for name in quota.hard if evaluator.counts(name)}
    if uncovered := sorted(needed - covered):
        raise attributes.refused(f"insufficient quota to consume: {','.join(uncovered)}")
    if not evaluator.has_scopes:
        return
    there = {scope.name for quota in quotas for scope in quota.scopes if measured.is_in(scope)}
    used = (scope for one in limited for scope in one.scopes if measured.is_in(scope))
    if without := [str(scope) for scope in used if scope.name not in there]:
        raise UnknownError(f"insufficient quota to match these scopes: [{' '.join(without)}]")


def _check_fits(quota: Quota, added: Amounts, attributes: Attributes) -> None:
    after = plus({name: quota.used[name] for name in added}, added)
    over = sorted(name for name, amount in after.items() if amount.number > quota.hard[name].number)
    if over:
        columns = (("requested", added), ("used", quota.used), ("limited", quota.hard))
        why = ", ".join(f"{word}: {_listed(over, amounts)}" for word, amounts in columns)
        raise attributes.refused(f"exceeded quota: {quota.name}, {why}")


def _listed(names: Collection[str], amounts: Amounts) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in names)


class StoredCluster:
    """The stored objects that determine the usage of ResourceClaims."""

    def __init__(self, store: WatchCache) -> None:
        self._store = store

    def device_classes(self) -> DeviceClasses:
        """See `Cluster`."""
        return DeviceClasses.of(map(_tree, self._store.snapshot(_DEVICE_CLASSES).items()))

    def pod(self, namespace: str, name: str) -> Tree | None:
        """See `Cluster`."""
        row = self._store.get("pods", f"{namespace}/{name}")
        return None if row is None else _tree(row)

    def device_claims(self, namespace: str) -> Iterable[Tree]:
        """See `Cluster`."""
        return map(_tree, self._store.snapshot(RESOURCE_CLAIMS).items(prefix=f"{namespace}/"))


class ResourceQuotas:
    """The plugin: checks creates and updates, and returns the writes of quotas. Pods with many containers are counted
    by `run`.
    """

    def __init__(self, store: WatchCache, limited: Sequence[Limited] = (), run: StepRunner = at_once) -> None:
        self._store = store
        self._limited = limited
        self._run = run
        self._evaluators = Evaluators(StoredCluster(store))

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Raises `Forbidden` if the usage exceeds a quota."""
        return self._validate(attributes) if self._concerns(attributes) else None

    async def _validate(self, attributes: Attributes) -> None:
        await self._decide(self._rows(attributes.namespace), attributes)

    def charge(self, attributes: Attributes) -> Awaitable[Sequence[Amend]] | None:
        """Return the quota updates of the write, or None if no quota applies. Awaiting it and each update raise the
        same errors.
        """
        return None if attributes.dry_run or not self._concerns(attributes) else self._charge(attributes)

    async def _charge(self, attributes: Attributes) -> Sequence[Amend]:
        rows = self._rows(attributes.namespace)
        added = await self._decide(rows, attributes)
        return [
            Amend(row.resource, row.key, partial(_charged, attributes, added[row.name]))
            for row in rows
            if row.name in added
        ]

    def _concerns(self, attributes: Attributes) -> bool:
        """Return whether quotas may apply to a write."""
        if not (self._limited or self._store.count(QUOTAS)):
            return False
        kind, old = attributes.kind, attributes.old_object
        if not attributes.namespace or kind.name in NOT_COUNTED:
            return False
        if old is None or kind.name != "pods" or attributes.subresource:
            return True
        return is_terminating(attributes.tree) != is_terminating(old)

    def _rows(self, namespace: str) -> Sequence[Row]:
        return tuple(self._store.snapshot(QUOTAS).items(prefix=f"{namespace}/"))

    async def _decide(self, rows: Sequence[Row], attributes: Attributes) -> Mapping[str, Amounts]:
        if not (rows or self._limited):
            return {}
        quotas = [_read(row.data) for row in rows]
        step = partial(decide, quotas, attributes, self._evaluators.of(attributes.kind.name), self._limited)
        return await self._run(step) if _is_large(attributes) else step()


def _is_large(attributes: Attributes) -> bool:
    """Return whether counting the requests of a pod takes long."""
    if attributes.kind.name != "pods":
        return False
    count = 0
    for tree in (attributes.object, attributes.old_object):
        spec = (tree or {}).get("spec") or {}
        for container in (one for name in ("containers", "initContainers") for one in spec.get(name) or ()):
            asked = container.get("resources") or {}
            count += 1 + len(asked.get("requests") or ()) + len(asked.get("limits") or ())
            if count > _MANY:
                return True
    return False


def _tree(row: Row) -> Tree:
    tree: Tree = orjson.loads(row.data)
    return tree


@lru_cache(maxsize=_MOST_READ)
def _read(data: bytes) -> Quota:
    return _quota_of(orjson.loads(data))


def _quota_of(tree: Tree) -> Quota:
    spec, status = tree.get("spec") or {}, tree.get("status") or {}
    hard, used = parsed(status.get("hard")), parsed(status.get("used"))
    uncounted = frozenset(spec.get("hard") or ()) - hard.keys()
    return Quota(tree["metadata"]["name"], hard, used, scopes_of(spec), uncounted)


def _charged(attributes: Attributes, added: Amounts, data: bytes) -> bytes:
    """Return a quota with the added usage of the resources it still limits. Raises `Forbidden` if that exceeds the
    quota.
    """
    tree: Tree = orjson.loads(data)
    quota = _quota_of(tree)
    left = _within(added, quota.hard)
    if not quota.used.keys() >= left.keys():
        raise _unknown(quota, sorted(left), attributes)
    if attributes.subresource != "status":
        _check_fits(quota, left, attributes)
    if left:
        tree["status"]["used"] = {name: str(one) for name, one in plus(quota.used, left).items()}
    tree["metadata"]["resourceVersion"] = ""
    return encode(in_order(tree))


def resource_quota(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin ResourceQuota."""
    configuration = parts.configuration.document(NAME, CONFIGURATION_TYPES, check)
    quotas = ResourceQuotas(parts.store, _limited(configuration) if configuration else (), parts.offload.run)

    def rules(admit: Admit) -> Sequence[Rule]:
        return (
            Rule(admit, ("create",), (ALL,)),
            Rule(admit, ("update",), ("pods", "services", "persistentvolumeclaims", RESOURCE_CLAIMS)),
            Rule(admit, ("update",), ("pods",), ("resize",)),
            Rule(admit, ("update",), ("persistentvolumeclaims",), ("status",)),
        )

    return AdmissionPlugin(NAME, validating=rules(quotas.validate), allocation=rules(quotas.charge))


def _limited(configuration: ResourceQuotaConfiguration) -> Sequence[Limited]:
    return [
        Limited(
            f"{one.resource}.{one.api_group}" if one.api_group else one.resource,
            one.match_contains,
            [QuotaScope(scope.scope_name, scope.operator, scope.values) for scope in one.match_scopes],
        )
        for one in configuration.limited_resources
    ]
