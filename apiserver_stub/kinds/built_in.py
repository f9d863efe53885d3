"""The built-in resources: each row of `data/resources.json`, joined with the tables of this package.

Only these tables find a kind by its name. Code that handles objects is given the `ResourceInfo`.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType

from apiserver_stub.common.flags.features import (
    DEVICE_POOL_STATUS,
    DEVICE_TAINT_RULES,
    POD_CERTIFICATES,
    STORAGE_MIGRATION,
    TRUST_BUNDLES,
)
from apiserver_stub.kinds import published
from apiserver_stub.kinds.conversions import (
    autoscaler_from_v2,
    autoscaler_to_v2,
    event_from_core,
    event_to_core,
    fitted,
    renamed,
)
from apiserver_stub.kinds.data import load
from apiserver_stub.kinds.defaults.kinds import DEFAULTS, PART_DEFAULTS, VIEW_DEFAULTS
from apiserver_stub.kinds.printers import PRINTERS
from apiserver_stub.kinds.resource_info import (
    DEFAULT_PRINTER,
    NO_DEFAULTS,
    Convert,
    ResourceInfo,
    SelectableField,
    Subresource,
)
from apiserver_stub.kinds.rules import (
    admission_policies,
    admissionregistration,
    api_services,
    autoscaling,
    certificates,
    core,
    definitions,
    device_claims,
    devices,
    endpoints,
    events,
    flow_control,
    jobs,
    networking,
    pod,
    pod_certificates,
    quantities,
    rbac,
    resource_slices,
    services,
    storage,
    storage_versions,
    trust_bundles,
    volumes,
    workloads,
)
from apiserver_stub.kinds.rules.combine import KindRules
from apiserver_stub.kinds.schema.schema import ANYTHING, Schemas
from apiserver_stub.kinds.strategies.kinds import strategy_of
from apiserver_stub.kinds.strategies.scale import ScalePaths
from apiserver_stub.kinds.strategies.strategy import nothing
from apiserver_stub.kinds.warnings.kinds import DEPRECATED, WARNINGS
from controller_manager.common.api.tree import Tree

_OBJECT = ("apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid")


def _as_is(paths: Iterable[str], absent: str = "") -> dict[str, SelectableField]:
    return {path: SelectableField(path, absent=absent) for path in paths}


# By `plural.group` of the kind, then by the path in the field selector.
SELECTABLE: Mapping[str, Mapping[str, SelectableField]] = MappingProxyType({
    "certificatesigningrequests.certificates.k8s.io": _as_is(("spec.signerName",)),
    "clustertrustbundles.certificates.k8s.io": _as_is(("spec.signerName",)),
    "events": {
        **_as_is(f"involvedObject.{name}" for name in _OBJECT),
        **_as_is(("reason", "reportingComponent", "type")),
        "source": SelectableField("source.component", instead="reportingComponent"),
    },
    "events.events.k8s.io": {
        **{f"regarding.{name}": SelectableField(f"involvedObject.{name}") for name in _OBJECT},
        **_as_is(("reason", "type")),
        "reportingController": SelectableField("reportingComponent"),
    },
    "jobs.batch": {"status.successful": SelectableField("status.succeeded", absent="0")},
    "namespaces": _as_is(("status.phase",)),
    "nodes": _as_is(("spec.unschedulable",), absent="false"),
    "podcertificaterequests.certificates.k8s.io": _as_is(("spec.nodeName", "spec.podName", "spec.signerName")),
    "pods": {
        **_as_is((
            "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
            "status.nominatedNodeName", "status.phase", "status.podIP", "status.podIPs",
        )),
        **_as_is(("spec.hostNetwork",), absent="false"),
    },
    "replicasets.apps": _as_is(("status.replicas",), absent="0"),
    "replicationcontrollers": _as_is(("status.replicas",), absent="0"),
    "resourceslices.resource.k8s.io": _as_is(("spec.driver", "spec.nodeName")),
    "secrets": _as_is(("type",)),
    "services": _as_is(("spec.clusterIP", "spec.type")),
})  # fmt: skip


RULES: Mapping[str, KindRules] = MappingProxyType({
    **admission_policies.RULES, **admissionregistration.RULES, **api_services.RULES,
    **autoscaling.RULES, "autoscaling/v1/HorizontalPodAutoscaler": autoscaling.older(autoscaler_to_v2),
    **certificates.RULES,
    **core.RULES, **definitions.RULES, **device_claims.RULES, **devices.RULES, **endpoints.RULES, **events.RULES,
    **flow_control.RULES, **jobs.RULES, **networking.RULES, **pod.RULES, **pod_certificates.RULES, **quantities.RULES,
    **services.RULES, **storage.RULES, **rbac.RULES, **resource_slices.RULES, **storage_versions.RULES,
    **trust_bundles.RULES, **volumes.RULES, **workloads.RULES,
})  # fmt: skip
# Kinds stored as another kind: (group, version, plural) -> storage, the stored kind, to_storage, from_storage.
_VIEWS: Mapping[tuple[str, str, str], tuple[str, tuple[str, str, str], Convert, Convert]] = MappingProxyType({
    ("events.k8s.io", "v1", "events"): ("events", ("", "v1", "Event"), event_to_core, event_from_core),
    ("autoscaling", "v1", "horizontalpodautoscalers"): (
        "horizontalpodautoscalers.autoscaling", ("autoscaling", "v2", "HorizontalPodAutoscaler"),
        autoscaler_to_v2, autoscaler_from_v2,
    ),
    ("certificates.k8s.io", "v1alpha1", "clustertrustbundles"): (
        "clustertrustbundles.certificates.k8s.io", ("certificates.k8s.io", "v1beta1", "ClusterTrustBundle"),
        renamed("certificates.k8s.io/v1beta1"), renamed("certificates.k8s.io/v1alpha1"),
    ),
    ("resource.k8s.io", "v1alpha3", "devicetaintrules"): (
        "devicetaintrules.resource.k8s.io", ("resource.k8s.io", "v1beta2", "DeviceTaintRule"),
        renamed("resource.k8s.io/v1beta2"), renamed("resource.k8s.io/v1alpha3"),
    ),
})  # fmt: skip
# The feature gate that a kind needs to be served, in any version.
_GATES: Mapping[str, str] = MappingProxyType({
    "clustertrustbundles.certificates.k8s.io": TRUST_BUNDLES,
    "devicetaintrules.resource.k8s.io": DEVICE_TAINT_RULES,
    "podcertificaterequests.certificates.k8s.io": POD_CERTIFICATES,
    "resourcepoolstatusrequests.resource.k8s.io": DEVICE_POOL_STATUS,
    "storageversionmigrations.storagemigration.k8s.io": STORAGE_MIGRATION,
})  # fmt: skip
# Kinds that perform an action: creating one equals creating the subresource of the object that the body names.
_ACTS: Mapping[tuple[str, str, str], tuple[str, str]] = MappingProxyType({("", "v1", "bindings"): ("pods", "binding")})


@cache
def resources() -> tuple[ResourceInfo, ...]:
    """Return every built-in resource. Schemas are resolved on first use, and servers in one process share them."""
    return tuple(_resource(raw, published.schemas(), published.names()) for raw in load("resources.json"))


def _resource(raw: Tree, schemas: Schemas, bodies: Mapping[str, str]) -> ResourceInfo:
    group, version, kind, plural = raw["group"], raw["version"], raw["kind"], raw["plural"]
    name = f"{plural}.{group}" if group else plural
    qualified = f"{group}/{version}/{kind}" if group else f"{version}/{kind}"
    subresources = {s["name"]: _subresource(s, group, version, schemas, bodies) for s in raw.get("subresources", ())}
    definition = bodies[f"{group}/{version}/{kind}"]
    view = _VIEWS.get((group, version, plural))
    storage_name, stored_as, inward, outward = view or (name, None, None, None)
    defaults = VIEW_DEFAULTS if view else DEFAULTS
    return ResourceInfo(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=raw["singular"],
        namespaced=raw["namespaced"],
        verbs=frozenset(raw["verbs"]),
        storage=storage_name,
        schema=schemas.node(definition),
        definition=definition,
        strategy=strategy_of(name, subresources),
        short_names=tuple(raw.get("shortNames", ())),
        categories=tuple(raw.get("categories", ())),
        subresources=subresources,
        scale=ScalePaths() if "scale" in subresources else None,
        fields=SELECTABLE.get(name, {}),
        to_storage=fitted(inward, schemas.node(bodies["/".join(stored_as)])) if inward and stored_as else None,
        from_storage=outward,
        stored_as=stored_as,
        defaults=defaults.get(name, nothing),
        part_defaults=None if view else PART_DEFAULTS.get(name) if name in DEFAULTS else NO_DEFAULTS,
        rules=RULES.get(qualified, KindRules()),
        warnings={subresource: table[qualified] for subresource, table in WARNINGS.items() if qualified in table},
        deprecation=DEPRECATED.get(qualified, ""),
        printer=PRINTERS.get((group, kind), DEFAULT_PRINTER),
        persisted="get" in raw["verbs"],
        acts_on=_ACTS.get((group, version, plural), ("", "")),
        gate=_GATES.get(name, ""),
    )


def _subresource(raw: Tree, group: str, version: str, schemas: Schemas, bodies: Mapping[str, str]) -> Subresource:
    group, version, kind = raw.get("group", group), raw.get("version", version), raw["kind"]
    definition = bodies.get(f"{group}/{version}/{kind}", "")
    return Subresource(
        name=raw["name"],
        kind=kind,
        group=group,
        version=version,
        verbs=frozenset(raw["verbs"]),
        schema=schemas.node(definition) if definition else ANYTHING,
        definition=definition,
        printer=PRINTERS.get((group, kind), DEFAULT_PRINTER),
    )
