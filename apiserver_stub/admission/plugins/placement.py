"""Plugins for pod placement; all are off by default.

| plugin                           | pod: create, update                                                           |
|----------------------------------|-------------------------------------------------------------------------------|
| LimitPodHardAntiAffinityTopology | rejected for required anti-affinity with another topology key than hostname   |
| ExtendedResourceToleration       | gets a toleration for the taint of each extended resource it requests         |
| PodNodeSelector (create only)    | gets the node selector of its namespace (annotation), or else that of the     |
|                                  | cluster; rejected if it conflicts, or has labels that the list of the         |
|                                  | namespace does not allow                                                      |
| PodTolerationRestriction         | gets the tolerations of its namespace or of the cluster (create), and that of |
|                                  | memory pressure unless it is best-effort; rejected if it has tolerations that |
|                                  | the list of the namespace, or else of the cluster, does not allow             |
"""

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

import msgspec

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Operation, Rule
from apiserver_stub.admission.configuration import ANY_VERSION
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.admission.plugins.tolerations import Toleration, Tolerations, as_trees, merged, tolerations_in
from apiserver_stub.common.config_file import ConfigDocument, ConfigModel, in_case
from apiserver_stub.common.error_list import ErrorList, FieldPath, key
from apiserver_stub.kinds.rules.quantities import is_extended_resource
from apiserver_stub.kinds.rules.tolerations import TOLERATIONS
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.errors import InternalError, UnknownError, forbidden
from controller_manager.common.api.model import Model
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.pod_resources import quality_of_service
from controller_manager.common.api.tree import Tree

_CREATE: tuple[Operation, ...] = ("create",)
_BOTH: tuple[Operation, ...] = ("create", "update")
_PODS, _NAMESPACES = ("pods",), "namespaces"
_ALPHA = f"scheduler.alpha.{PLATFORM_DOMAIN}/"
_MOST_REMEMBERED = 1024  # annotations


class _Annotated(Model):
    annotations: Mapping[str, str] | None = None


class _Namespace(Model):
    metadata: _Annotated = _Annotated()


_NAMESPACE = msgspec.json.Decoder(_Namespace)


def annotation_of(store: WatchCache, namespace: str, name: str) -> str | None:
    """Return the value of an annotation of a namespace. Raises `InternalError` if the namespace does not exist."""
    row = store.get(_NAMESPACES, namespace)
    if row is None:
        raise InternalError(f"Internal error occurred: namespace {namespace} does not exist")
    return (_NAMESPACE.decode(row.data).metadata.annotations or {}).get(name)


# LimitPodHardAntiAffinityTopology

_HOST = f"{PLATFORM_DOMAIN}/hostname"
_APART = ("affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


async def check_topology(attributes: Attributes) -> None:
    """Raises `Forbidden` for required anti-affinity with another topology key than the hostname."""
    for term in get_in(attributes.tree, ("spec", *_APART)) or ():
        if term.get("topologyKey") != _HOST:
            raise attributes.refused(f"spec.{'.'.join(_APART)} may have the topologyKey {_HOST} only")


def limit_pod_hard_anti_affinity_topology(_parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin LimitPodHardAntiAffinityTopology."""
    return AdmissionPlugin("LimitPodHardAntiAffinityTopology", validating=(Rule(check_topology, _BOTH, _PODS),))


# ExtendedResourceToleration


async def tolerate_resources(attributes: Attributes) -> None:
    """Add tolerations for the extended resources that the containers of a pod request."""
    await attributes.run(partial(_tolerate_resources, attributes.tree))


def _tolerate_resources(pod: Tree) -> None:
    spec = pod.get("spec") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    wanted = {name for one in containers for name in get_in(one, ("resources", "requests")) or ()}
    added = {
        name: {"key": name, "operator": "Exists", "effect": "NoSchedule"}
        for name in sorted(filter(is_extended_resource, wanted))
    }
    missing, tolerations = dict(added), []
    for one in spec.get("tolerations") or ():
        own = added.get(one.get("key", ""))
        is_same = own is not None and _without_seconds(one) == own
        tolerations.append(own if is_same else one)
        if is_same:
            missing.pop(one["key"], None)
    tolerations += missing.values()
    if tolerations:
        pod["spec"] = {**spec, "tolerations": tolerations}


def _without_seconds(toleration: Tree) -> Tree:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds" and value}


def extended_resource_toleration(_parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin ExtendedResourceToleration."""
    return AdmissionPlugin("ExtendedResourceToleration", mutating=(Rule(tolerate_resources, _BOTH, _PODS),))


# PodNodeSelector


class PodNodeSelectorConfiguration(ConfigModel, forbid_unknown_fields=False):
    """The allowed node selectors (`a=b,c=d`) by namespace; `_OF_CLUSTER` is the key of the cluster default."""

    pod_node_selector_plugin_config: Mapping[str, str] = {}


_OF_CLUSTER = "clusterDefaultNodeSelector"
_SELECTOR = f"{_ALPHA}node-selector"
_CONFLICT = "pod node label selector conflicts with its namespace node label selector"
_NOT_LISTED = "pod node label selector labels conflict with its namespace whitelist"


@lru_cache(_MOST_REMEMBERED)
def selector_of(text: str) -> Mapping[str, str]:
    """Parse a list of `name=value` labels. Raises `ValueError`."""
    found = {}
    for part in text.split(",") if text else ():
        name, *values = (one.strip() for one in part.split("="))
        if len(values) != 1:
            raise ValueError(f"{part!r} is not of the form name=value")
        if why := names.qualified(name) or names.label_value(values[0]):
            raise ValueError(f"{part!r}: {why}")
        found[name] = values[0]
    return found


def check_selectors(configuration: PodNodeSelectorConfiguration) -> ErrorList:
    """Return the validation errors of a configuration."""
    errors, at = ErrorList(), (None, "podNodeSelectorPluginConfig")
    for namespace, text in configuration.pod_node_selector_plugin_config.items():
        try:
            selector_of(text)
        except ValueError as error:
            errors.invalid((at, key(namespace)), text, str(error))
    return errors


class PodNodeSelector:
    """The plugin: reads namespaces from the store."""

    def __init__(self, store: WatchCache, selectors: Mapping[str, str]) -> None:
        self._store = store
        self._listed = {namespace: selector_of(text) for namespace, text in selectors.items()}
        self._of_cluster = self._listed.get(_OF_CLUSTER, {})

    async def admit(self, attributes: Attributes) -> None:
        """Add the node selector of its namespace to a new pod. Raises `Forbidden`."""
        pod = attributes.tree
        spec = pod.get("spec") or {}
        if wanted := self._of(attributes.namespace):
            self._agree(attributes, wanted)
            pod["spec"] = {**spec, "nodeSelector": {**wanted, **(spec.get("nodeSelector") or {})}}
        await self.validate(attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Raises `Forbidden` for a pod with another selector than it may have."""
        self._agree(attributes, self._of(attributes.namespace))
        listed = self._listed.get(attributes.namespace)
        if listed and not _selector(attributes).items() <= listed.items():
            raise _refused(attributes, _NOT_LISTED)

    def _of(self, namespace: str) -> Mapping[str, str]:
        text = annotation_of(self._store, namespace, _SELECTOR)
        if text is None:
            return self._of_cluster
        try:
            return selector_of(text)
        except ValueError as error:
            raise UnknownError(f"the annotation {_SELECTOR} of the namespace {namespace}: {error}") from None

    def _agree(self, attributes: Attributes, wanted: Mapping[str, str]) -> None:
        selector = _selector(attributes)
        if any(selector.get(name, value) != value for name, value in wanted.items()):
            raise _refused(attributes, _CONFLICT)


def _selector(attributes: Attributes) -> Mapping[str, str]:
    return get_in(attributes.tree, ("spec", "nodeSelector")) or {}


def _refused(attributes: Attributes, why: str) -> Exception:
    """Return the error for a pod, without a name if it is not generated yet."""
    kind = attributes.kind
    return forbidden(kind.group, kind.plural, get_in(attributes.tree, ("metadata", "name")) or "", why)


def pod_node_selector(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin PodNodeSelector."""
    types = {ANY_VERSION: PodNodeSelectorConfiguration}
    found = parts.configuration.document("PodNodeSelector", types, check_selectors) or PodNodeSelectorConfiguration()
    plugin = PodNodeSelector(parts.store, found.pod_node_selector_plugin_config)
    admit, validate = (Rule(one, _CREATE, _PODS) for one in (plugin.admit, plugin.validate))
    return AdmissionPlugin("PodNodeSelector", (admit,), (validate,))


# PodTolerationRestriction


class PodTolerationConfiguration(ConfigDocument, forbid_unknown_fields=False):
    """Default and allowed tolerations of pods in namespaces without annotations."""

    kind: str = "Configuration"
    default: tuple[Toleration, ...] = ()
    whitelist: tuple[Toleration, ...] = ()


_TYPES = {f"podtolerationrestriction.admission.{GROUP_DOMAIN}/v1alpha1": PodTolerationConfiguration}
_DEFAULT, _LIST = f"{_ALPHA}defaultTolerations", f"{_ALPHA}tolerationsWhitelist"
_PRESSURE = Toleration(key=f"node.{PLATFORM_DOMAIN}/memory-pressure", operator="Exists", effect="NoSchedule")


def check_tolerations(configuration: PodTolerationConfiguration) -> ErrorList:
    """Return the validation errors of a configuration."""
    errors = ErrorList()
    for field in ("default", "whitelist"):
        trees, at = as_trees(getattr(configuration, field)), (None, field)
        TOLERATIONS(trees, at, errors)
        for index, tree in enumerate(trees):
            if (operator := tree.get("operator", "")) not in ("", "Equal", "Exists"):
                place: FieldPath = ((at, index), "operator")
                errors.unsupported(place, operator, ("Equal", "Exists"))
    return errors


@lru_cache(_MOST_REMEMBERED)
def tolerations_of(text: str) -> Tolerations:
    """Return the tolerations of an annotation, as Go reads them. Raises `ValueError`."""
    try:
        items = msgspec.json.decode(text or "[]", type=list[dict[str, Any] | None] | None) or ()
        return msgspec.convert([in_case(item or {}, Toleration) for item in items], tuple[Toleration, ...])
    except msgspec.DecodeError as error:
        raise ValueError(f"not a list of tolerations: {error}") from None


class PodTolerationRestriction:
    """The plugin: reads namespaces from the store."""

    def __init__(self, store: WatchCache, configuration: PodTolerationConfiguration) -> None:
        self._store = store
        self._configuration = configuration

    async def admit(self, attributes: Attributes) -> None:
        """Add missing tolerations to a pod. Raises `UnknownError` for tolerations that are not allowed."""
        pod = attributes.tree
        spec = pod.get("spec") or {}
        more: list[Toleration] = []
        if attributes.operation == "create":
            usual = self._annotated(attributes.namespace, _DEFAULT)
            more += self._configuration.default if usual is None else usual
        if quality_of_service(spec) != "BestEffort":
            more.append(_PRESSURE)
        if more:
            pod["spec"] = await attributes.run(partial(_with_tolerations, spec, more))
        await self.validate(attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Raises `UnknownError` if the pod has tolerations that its namespace does not allow."""
        tolerations = tolerations_in(attributes.tree.get("spec") or {})
        if not tolerations:
            return
        listed, whose = self._annotated(attributes.namespace, _LIST), "namespace"
        if listed is None:
            listed, whose = self._configuration.whitelist, "cluster"
        if listed and (wrong := [one for one in tolerations if not any(other.covers(one) for other in listed)]):
            shown = msgspec.json.encode(wrong[0]).decode()
            raise UnknownError(f"the toleration {shown} of the pod is not in the whitelist of its {whose}")

    def _annotated(self, namespace: str, name: str) -> Tolerations | None:
        text = annotation_of(self._store, namespace, name)
        try:
            return None if text is None else tolerations_of(text)
        except ValueError as error:
            raise UnknownError(f"the annotation {name} of the namespace {namespace}: {error}") from None


def _with_tolerations(spec: Tree, more: Tolerations) -> Tree:
    return {**spec, "tolerations": as_trees(merged(tolerations_in(spec), more))}


def pod_toleration_restriction(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin PodTolerationRestriction."""
    name = "PodTolerationRestriction"
    found = parts.configuration.document(name, _TYPES, check_tolerations)
    plugin = PodTolerationRestriction(parts.store, found or PodTolerationConfiguration(api_version=""))
    admit, validate = (Rule(one, _BOTH, _PODS) for one in (plugin.admit, plugin.validate))
    return AdmissionPlugin(name, (admit,), (validate,))
