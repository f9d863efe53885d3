"""Pod Security admission (KEP-2579): pods must meet the level in the labels of their namespace.

| request                                  | is rejected for           | effects of the other modes                  |
|------------------------------------------|---------------------------|---------------------------------------------|
| pod: create; update of its images or of  | violations of the         | warnings and audit annotations for          |
| the number of its containers             | enforced level            | violations of their levels                  |
| owner of pods (Deployment, Job …)        | nothing                   | the same, for its pod template              |
| namespace: create, update                | invalid labels            | warnings for pods that violate a stricter   |
|                                          |                           | level, and for labels without effect        |

Users, runtime classes and namespaces may be exempt.
"""

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.admission.plugins.pod_security.checks import violations
from apiserver_stub.admission.plugins.pod_security.existing import ExistingPods
from apiserver_stub.admission.plugins.pod_security.pods import CheckedPod
from apiserver_stub.admission.plugins.pod_security.policy import (
    CONFIGURATION_TYPES,
    LATEST,
    PREFIX,
    PRIVILEGED,
    Found,
    LevelVersion,
    PodSecurityConfiguration,
    check,
    described,
    is_stricter,
    minor_of,
    policy_of,
)
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.errors import InternalError, forbidden, invalid
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.metrics import Counters, Family

NAME = "PodSecurity"
_NAMESPACES, _PODS = "namespaces", "pods"
_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "replicationcontrollers": ("spec", "template"),
    "podtemplates": ("template",),
    "replicasets.apps": ("spec", "template"),
    "deployments.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "jobs.batch": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
}
"""The path of the pod template in objects that own pods."""
_POD_PARTS = ("", "ephemeralcontainers", "resize")
_MINOR = 36  # of this API; later versions are unknown
_PRIVILEGED = str(LevelVersion())
_EXEMPT, _ERROR = f"{PREFIX}exempt", f"{PREFIX}error"
_ENFORCED, _VIOLATED = f"{PREFIX}enforce-policy", f"{PREFIX}audit-violations"

_REQUEST = ("request_operation", "resource", "subresource")
_EVALUATIONS = Family(
    "pod_security_evaluations_total",
    "Number of policy evaluations, by decision, not counting ignored or exempt requests.",
    "counter",
    ("decision", "policy_level", "policy_version", "mode", *_REQUEST),
)
_EXEMPTIONS = Family("pod_security_exemptions_total", "Number of exempt requests.", "counter", _REQUEST)
_ERRORS = Family(
    "pod_security_errors_total",
    "Number of errors that prevented a normal evaluation; nonfatal ones may use the latest restricted policy.",
    "counter",
    ("fatal", *_REQUEST),
)


class PodSecurity:
    """The plugin: reads namespaces and pods from the store."""

    def __init__(
        self,
        store: WatchCache,
        registry: CollectorRegistry | None = None,
        configuration: PodSecurityConfiguration | None = None,
    ) -> None:
        configuration = configuration or PodSecurityConfiguration()
        exempt = configuration.exemptions
        self._store = store
        defaults = configuration.defaults.policy()
        self._default = PRIVILEGED if defaults.is_privileged else Found(defaults)
        self._users, self._namespaces = frozenset(exempt.usernames), frozenset(exempt.namespaces)
        self._has_exemptions = bool(self._users or self._namespaces)
        self._runtime_classes = frozenset(exempt.runtime_classes)
        self._existing = ExistingPods(store, self._runtime_classes)
        self._evaluations = Counters(_EVALUATIONS, registry)
        self._exemptions = Counters(_EXEMPTIONS, registry)
        self._errors = Counters(_ERRORS, registry)

    def plugin(self) -> AdmissionPlugin:
        """Return it with its rules."""
        return AdmissionPlugin(
            NAME,
            validating=(
                Rule(self.check_pod, ("create",), (_PODS,)),
                Rule(self.check_pod, ("update",), (_PODS,), _POD_PARTS),
                Rule(self.check_owner, ("create", "update"), tuple(_TEMPLATES)),
                Rule(self.check_namespace, ("create", "update"), (_NAMESPACES,)),
            ),
        )

    def check_pod(self, attributes: Attributes) -> None:
        """Raises `Forbidden` for a pod that violates the enforced level; adds warnings and annotations of the other
        modes.
        """
        if self._has_exemptions and self._is_exempt(attributes):
            return
        row = self._store.get(_NAMESPACES, attributes.namespace)
        if row is None:
            raise InternalError(self._lost(attributes, "Internal error occurred: "))
        found = policy_of(row.labels, self._default)
        if _allows_all(found):
            self._count_privileged(_about(attributes))
            attributes.notes.annotate(_ENFORCED, _PRIVILEGED)
            return
        if attributes.old_object is None or is_significant(attributes.tree, attributes.old_object):
            self._judge(attributes, found, attributes.tree, enforces=True)

    def check_owner(self, attributes: Attributes) -> None:
        """Add warnings and annotations for the pod template of an object; never rejects it."""
        if self._has_exemptions and self._is_exempt(attributes):
            return
        row = self._store.get(_NAMESPACES, attributes.namespace)
        if row is None:
            self._lost(attributes)
            return
        found = policy_of(row.labels, self._default)
        if not found.problems and found.policy.warn.level == found.policy.audit.level == "privileged":
            return
        template = get_in(attributes.tree, _TEMPLATES[attributes.kind.storage])
        if template is not None:
            self._judge(attributes, found, template, enforces=False)

    async def check_namespace(self, attributes: Attributes) -> None:
        """Raises `Invalid` for invalid labels, unless they are unchanged. Adds warnings for existing pods that violate
        a stricter level, and for labels without effect.
        """
        labels = get_in(attributes.tree, ("metadata", "labels")) or {}
        new = policy_of(labels, self._default)
        old = policy_of(get_in(attributes.old_object, ("metadata", "labels")) or {}, self._default)
        updates = attributes.old_object is not None
        if new.problems and not (updates and new.problems == old.problems):
            raise invalid("", attributes.kind.kind, attributes.name, new.problems)
        if updates and not _is_tightened(old.policy.enforce, new.policy.enforce):
            return
        if attributes.name in self._namespaces:
            if not (new.policy.is_privileged or new.policy.is_like(self._default.policy)):
                ignored = f"the policy ({described(new.policy, labels)}) will be ignored"
                attributes.notes.warn(f'namespace "{attributes.name}" is exempt from Pod Security, and {ignored}')
        elif updates:
            for warning in await self._existing.warnings(attributes.name, new.policy.enforce):
                attributes.notes.warn(warning)

    def _is_exempt(self, attributes: Attributes) -> bool:
        if attributes.namespace in self._namespaces:
            return self._exempt("namespace", attributes)
        return attributes.user.name in self._users and self._exempt("user", attributes)

    def _exempt(self, why: str, attributes: Attributes) -> bool:
        self._exemptions.add(*_about(attributes))
        attributes.notes.annotate(_EXEMPT, why)
        return True

    def _lost(self, attributes: Attributes, prefix: str = "") -> str:
        """Record that the namespace of a request does not exist; return the message."""
        message = f'{prefix}failed to lookup namespace "{attributes.namespace}"'
        attributes.notes.annotate(_ERROR, f'{message}: namespaces "{attributes.namespace}" not found')
        self._errors.add("true", *_about(attributes))
        return message

    def _judge(self, attributes: Attributes, found: Found, tree: Tree, *, enforces: bool) -> None:
        """Check a pod or pod template against each mode of a policy."""
        notes, policy, pod = attributes.notes, found.policy, CheckedPod.of(tree)
        if pod.spec.get("runtimeClassName") in self._runtime_classes:
            self._exempt("runtimeClass", attributes)
            return
        if found.problems:
            notes.annotate(_ERROR, f"Failed to parse policy: {_listed(found)}")
            self._errors.add("false", *_about(attributes))
        messages: dict[LevelVersion, str] = {}
        if enforces:
            notes.annotate(_ENFORCED, str(policy.enforce))
            messages[policy.enforce] = _message(policy.enforce, pod)
            self._count("deny" if messages[policy.enforce] else "allow", policy.enforce, "enforce", attributes)
        if policy.audit not in messages:
            messages[policy.audit] = _message(policy.audit, pod)
        if why := messages[policy.audit]:
            notes.annotate(_VIOLATED, f"would violate {why}")
            self._count("deny", policy.audit, "audit", attributes)
        if enforces and (why := messages[policy.enforce]):
            raise forbidden(attributes.kind.group, attributes.kind.plural, attributes.name, f"violates {why}")
        if policy.warn not in messages:
            messages[policy.warn] = _message(policy.warn, pod)
        if why := messages[policy.warn]:
            notes.warn(f"would violate {why}")
            self._count("deny", policy.warn, "warn", attributes)

    def _count_privileged(self, about: tuple[str, str, str]) -> None:
        self._evaluations.add("allow", "privileged", LATEST, "enforce", *about)

    def _count(self, decision: str, asked: LevelVersion, mode: str, attributes: Attributes) -> None:
        level, version = asked
        if level == "privileged":
            version = LATEST
        elif version != LATEST and (minor_of(version) or 0) > _MINOR:
            version = "future"
        self._evaluations.add(decision, level, version, mode, *_about(attributes))


def _allows_all(found: Found) -> bool:
    """Return whether no mode restricts pods."""
    return found is PRIVILEGED or (found.policy.is_privileged and not found.problems)


def _is_tightened(old: LevelVersion, new: LevelVersion) -> bool:
    """Return whether a change of the enforced level may reject pods that were allowed."""
    if new == old or new.level == "privileged":
        return False
    return new.version != old.version or is_stricter(new.level, old.level)


def _message(asked: LevelVersion, pod: CheckedPod) -> str:
    """Return the violations of a level by a pod as a message; empty without violations."""
    found = violations(asked, pod)
    return f'PodSecurity "{asked}": {", ".join(map(str, found))}' if found else ""


def _listed(found: Found) -> str:
    problems = [f"{one.field}: {one.message}" for one in found.problems]
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


def _about(attributes: Attributes) -> tuple[str, str, str]:
    """Return the metric labels of a request."""
    resource = "pod" if attributes.kind.storage == _PODS else "controller"
    return attributes.operation, resource, attributes.subresource


def is_significant(new: Tree, old: Tree) -> bool:
    """Return whether an update of a pod changes the number of its containers or an image."""
    now, before = new.get("spec") or {}, old.get("spec") or {}
    for field in ("containers", "initContainers"):
        if _images(now, field) != _images(before, field):
            return True
    known = {one.get("name"): one.get("image") for one in before.get("ephemeralContainers") or ()}
    return any(
        one.get("name") not in known or known[one["name"]] != one.get("image")
        for one in now.get("ephemeralContainers") or ()
    )


def _images(spec: Tree, field: str) -> Sequence[str | None]:
    return [one.get("image") for one in spec.get(field) or ()]


def pod_security(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin PodSecurity."""
    configuration = parts.configuration.document(NAME, CONFIGURATION_TYPES, check)
    return PodSecurity(parts.store, parts.runtime.registry, configuration).plugin()
