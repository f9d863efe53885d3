"""Admission plugins of other packages, which add rules to a cluster without a webhook.

A package declares a plugin as an entry point of the group `apiserver_stub.admission`, named like the plugin, which
refers to a function from `AdmissionContext` to `AdmissionPlugin`. `--enable-admission-plugins` enables it. It runs
after the plugins of the server and before policies, webhooks and quotas. Exceptions other than API errors fail the
request with an error that names the plugin.
"""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

import msgspec

from apiserver_stub.admission.chain import AdmissionPlugin, Admit, Attributes, Rules
from apiserver_stub.admission.matching import kind_of
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.common.config_file import ConfigFileError
from apiserver_stub.common.error_list import ErrorList
from apiserver_stub.common.flags.admission import ENTRY_POINTS
from apiserver_stub.encode import json
from apiserver_stub.kinds.defaults.kinds import apply_defaults
from apiserver_stub.kinds.fit import fit_tree
from apiserver_stub.kinds.values.trees import deep_copy
from controller_manager.common.api.errors import ApiError, InternalError
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.log import Logger
from controller_manager.common.base.tasks import keep_running
from controller_manager.common.serving import authorization
from controller_manager.common.serving.authentication import User

T = TypeVar("T", bound=msgspec.Struct)


class AdmissionContext:
    """The parts of the server that a plugin may use: current objects, its configuration document, a log, the metrics
    registry (`prometheus_client`), and authorization.

    Resources are named `pods`, `deployments.apps`.
    """

    def __init__(self, name: str, parts: AdmissionParts) -> None:
        self.name = name
        self.log: Logger = parts.runtime.log("admission").bind(plugin=name)
        self.registry = parts.runtime.registry
        self._store = parts.store
        self._configuration = parts.configuration
        self._authorizer = parts.authorizer

    def configuration(self, types: Mapping[str, type[T]], check: Callable[[T], ErrorList] | None = None) -> T | None:
        """Return the plugin's document of `--admission-control-config-file` as the type of its API version; None if
        there is none. Types are `ConfigDocument`s, or under `ANY_VERSION` any `ConfigModel`; `check` collects
        validation errors.
        """
        return self._configuration.document(self.name, types, check)

    def get(self, resource: str, name: str, namespace: str = "") -> Tree | None:
        """Return a copy of an object in its storage version; None if it does not exist."""
        row = self._store.get(resource, f"{namespace}/{name}" if namespace else name)
        return None if row is None else json.decode(row.data)

    def list(self, resource: str, namespace: str = "") -> Iterator[Tree]:
        """Yield the objects of a resource, in one namespace or all."""
        for row in self._store.snapshot(resource).items():
            if not namespace or row.namespace == namespace:
                yield json.decode(row.data)

    async def allows(
        self,
        user: User,
        verb: str,
        resource: str,
        *,
        group: str = "",
        version: str = "*",
        namespace: str = "",
        name: str = "",
    ) -> bool:
        """Return whether a user is allowed to do something."""
        asked = authorization.AuthorizerAttributes(user, verb, "", group, version, resource, "", namespace, name)
        return (await self._authorizer.authorize(asked)).decision is authorization.Decision.ALLOW


MakePlugin = Callable[[AdmissionContext], AdmissionPlugin]
"""Makes a plugin for one server."""


def installed(name: str) -> MakePlugin:
    """Return the factory of the plugin declared by an installed package. Raises `ValueError`."""
    found = list(entry_points(group=ENTRY_POINTS, name=name))
    if not found:
        raise ValueError(f"--enable-admission-plugins: no installed package provides the plugin {name}")
    if len(found) > 1:
        raise ValueError(
            f"the admission plugin {name} is in two packages: {_described(found[0])} and {_described(found[1])}"
        )
    (entry,) = found
    problem = f"failed to load the admission plugin {name} of {_described(entry)}"

    def make(context: AdmissionContext) -> AdmissionPlugin:
        try:
            plugin = entry.load()(context)
        except ConfigFileError:
            raise
        except Exception as error:
            raise ValueError(f"{problem}: {type(error).__name__}: {error}") from error
        if not isinstance(plugin, AdmissionPlugin):
            raise ValueError(f"{problem}: its factory returned a {type(plugin).__name__}, expected an AdmissionPlugin")
        return plugin

    return make


def own_plugin(name: str, make: MakePlugin, parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin, guarded so that its errors affect only requests. Raises `ValueError`."""
    context = AdmissionContext(name, parts)
    plugin = make(context)
    if plugin.name != name or plugin.allocation:
        wrong = "has allocation rules" if plugin.allocation else f"is named {plugin.name!r}"
        raise ValueError(f"the admission plugin {name} is invalid: it {wrong}")
    return plugin._replace(
        mutating=_each(plugin.mutating, context, _mutating),
        validating=_each(plugin.validating, context, _validating),
        run=None if plugin.run is None else partial(_kept_running, plugin.run, context),
    )


def _described(entry: EntryPoint) -> str:
    package = f"the package {entry.dist.name}" if entry.dist else "a package"
    return f"{package} ({entry.value})"


async def _kept_running(run: Callable[[], Coroutine[Any, Any, None]], context: AdmissionContext) -> None:
    await keep_running(run, context.log, name=context.name)


Guard = Callable[[Admit, AdmissionContext], Admit]


def _each(rules: Rules, context: AdmissionContext, guard: Guard) -> Rules:
    return [rule._replace(admit=guard(rule.admit, context)) for rule in rules]


def _mutating(admit: Admit, context: AdmissionContext) -> Admit:
    """Return `admit` wrapped to run on copies of the objects; changes are validated against the schema and then
    applied.
    """

    async def guarded(attributes: Attributes) -> None:
        changed = deep_copy(attributes.object)
        await _asked(admit, context, attributes, changed)
        if changed is None or changed == attributes.object:
            return
        problem = _fitted(changed, attributes)
        if problem:
            context.log.error("admission plugin produced an invalid object", problem=problem)
            raise InternalError(f"Internal error occurred: the admission plugin {context.name} produced {problem}")
        attributes.tree.clear()
        attributes.tree.update(changed)

    return guarded


def _validating(admit: Admit, context: AdmissionContext) -> Admit:
    """Return `admit` on copies of the objects."""

    async def guarded(attributes: Attributes) -> None:
        await _asked(admit, context, attributes, deep_copy(attributes.object))

    return guarded


async def _asked(admit: Admit, context: AdmissionContext, attributes: Attributes, tree: Tree | None) -> None:
    try:
        shown = msgspec.structs.replace(attributes, object=tree, old_object=deep_copy(attributes.old_object))
        if (waiting := admit(shown)) is not None:
            await waiting
    except ApiError:
        raise
    except Exception as error:
        context.log.exception("admission plugin failed", resource=attributes.kind.storage, name=attributes.known_name)
        what = f"the admission plugin {context.name} failed: {type(error).__name__}"
        raise InternalError(f"Internal error occurred: {what}") from error


def _fitted(tree: Tree, attributes: Attributes) -> str:
    """Validate a plugin's object against its schema and complete it. Return the error, or an empty string."""
    kind, subresource = attributes.kind, attributes.subresource
    itself = kind_of(kind, subresource) == kind_of(kind, "")
    try:
        found: Tree = json.decode(json.encode(tree))  # values without a JSON form fail here
        report = fit_tree(found, kind.schema if itself else kind.subresources[subresource].schema)
    except (TypeError, ValueError, ApiError) as error:
        return f"an invalid object ({error})"
    if report.wrong:
        return f"an invalid object: {'; '.join(report.wrong)}"
    if itself:
        apply_defaults(found, kind)
    tree.clear()
    tree.update(found)
    return ""
