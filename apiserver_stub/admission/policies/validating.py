"""The plugin ValidatingAdmissionPolicy: CEL policies validate requests (KEP-3488).

Policies, their bindings and parameters are evaluated in the order of their names. All are evaluated, because each may
add warnings and annotations; the first rejection is returned. A policy that cannot be applied (unknown parameter kind,
missing required parameters) also rejects the request, unless its failure policy is `Ignore`.
"""

from collections.abc import Awaitable, Mapping
from types import MappingProxyType

import msgspec

from apiserver_stub.admission.chain import ALL, AdmissionPlugin, Attributes, Operation, Rule
from apiserver_stub.admission.configuration import V1, PolicyConfiguration, no_manifests
from apiserver_stub.admission.matching import Matcher
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.admission.policies.index import Binding, IndexedPolicy, PolicyIndex
from apiserver_stub.admission.policies.inputs import RequestInputs, is_exempt, subject_of
from apiserver_stub.admission.policies.judgement import Judge, Judgement, ValidationDecision
from apiserver_stub.admission.policies.parameters import ConfigurationError, Parameters
from apiserver_stub.common.offload import StepRunner
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.errors import (
    ApiError,
    Cause,
    Details,
    Forbidden,
    Invalid,
    RequestEntityTooLarge,
    forbidden,
)
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.metrics import Counters, Family, Histograms
from controller_manager.common.base.registry import Registry
from controller_manager.common.serving.authorization import Authorizer

NAME = "ValidatingAdmissionPolicy"
_GROUP = f"admissionregistration.{GROUP_DOMAIN}"
_RESOURCES = f"validatingadmissionpolicies.{_GROUP}", f"validatingadmissionpolicybindings.{_GROUP}"
_OPERATIONS: tuple[Operation, ...] = ("create", "update", "delete", "connect")
_FAILURE = f"validation.policy.admission.{GROUP_DOMAIN}/validation_failure"
_LONGEST_VALUE = 10 * 1024  # bytes of an annotation
_REFUSALS: Mapping[str, type[ApiError]] = MappingProxyType(
    {one.reason: one for one in (Forbidden, Invalid, RequestEntityTooLarge)}
)
_ERROR_TYPES = (
    ("compilation", "compile_error"),
    ("validation failed due to running out of cost budget", "out_of_budget"),
)
_ESCAPES: Mapping[str, str] = MappingProxyType({"&": "\\u0026", "<": "\\u003c", ">": "\\u003e"})
_LABELS = ("policy", "policy_binding", "error_type", "enforcement_action")
_CHECKS = Family(
    "apiserver_validating_admission_policy_check_total",
    "Number of failed validations, by enforcement action.",
    "counter",
    _LABELS,
    stability="BETA",
)
_SECONDS = Family(
    "apiserver_validating_admission_policy_check_duration_seconds",
    "Seconds spent in failed validations, by enforcement action.",
    "histogram",
    _LABELS,
    (0.0000005, 0.001, 0.01, 0.1, 1.0),
    stability="BETA",
)


class ValidatingPolicies:
    """The plugin. Long operations are executed by `run`."""

    def __init__(
        self, store: WatchCache, kinds: ResourceRegistry, authorizer: Authorizer, registry: Registry, run: StepRunner
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._run = run
        self._matcher = Matcher(store, kinds)
        self._index: PolicyIndex[Judge] = PolicyIndex(store, self._matcher, _RESOURCES, _compiled, run)
        self._parameters = Parameters(store, kinds)
        self._metrics = _Metrics(registry)

    def plugin(self) -> AdmissionPlugin:
        """Return the plugin for the chain."""
        rule = Rule(self.validate, _OPERATIONS, (ALL,), (ALL,))
        return AdmissionPlugin(NAME, validating=(rule,), read=self._index.read)

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Raise the refusal of a request that a policy denies, if there are any."""
        return self._validate(attributes) if self._index and not is_exempt(attributes.kind) else None

    async def _validate(self, attributes: Attributes) -> None:
        inputs = RequestInputs(attributes, self._store, self._authorizer)
        consequences = _Consequences(attributes, self._metrics)
        for policy, info in self._index.matching(attributes, inputs):
            if policy.program is None:
                policy.exclusion = (await self._index.program(policy)).exclusion
            await self._apply(policy, await self._index.program(policy), info, inputs, consequences)
        if consequences.refusal is not None:
            raise consequences.refusal

    async def _apply(
        self,
        policy: IndexedPolicy[Judge],
        program: Judge,
        info: ResourceInfo,
        inputs: RequestInputs,
        consequences: "_Consequences",
    ) -> None:
        """Apply a policy that matches a request, with each of its bindings."""
        try:
            if policy.param_kind is not None:
                self._parameters.resource(policy.param_kind)
        except ConfigurationError as error:
            consequences.misconfigured(policy, None, str(error))
            return
        attributes = inputs.attributes
        annotations: dict[str, dict[str, None]] = {}
        for binding in policy.bindings:
            if binding.criteria is not None and self._matcher.match(binding.criteria, attributes) is None:
                continue
            try:
                found = await self._parameters.collect(policy.param_kind, binding.parameters, attributes.namespace)
                versioned = await inputs.version(info)
            except (ConfigurationError, ApiError) as error:
                consequences.misconfigured(policy, binding, str(error))
                continue
            for params in found:
                judgement = await program.judge(inputs, versioned, params, self._run)
                consequences.follow(policy, binding, judgement)
                for each in judgement.annotations:
                    if not each.failed:
                        annotations.setdefault(each.key, {})[_cut(each.value)] = None
        for key, values in annotations.items():
            attributes.notes.annotate(f"{policy.name}/{key}", ", ".join(values))


class _Consequences:
    """The effects of policies on a request: `refusal` is the first rejection."""

    def __init__(self, attributes: Attributes, metrics: "_Metrics") -> None:
        self.refusal: ApiError | None = None
        self._attributes = attributes
        self._metrics = metrics

    def misconfigured(self, policy: IndexedPolicy[Judge], binding: Binding | None, why: str) -> None:
        """Reject the request because a policy or binding cannot be applied, unless the failure policy is `Ignore`."""
        if policy.fails:
            self._refuse(policy, binding, f"failed to configure {'policy' if binding is None else 'binding'}: {why}")

    def follow(self, policy: IndexedPolicy[Judge], binding: Binding, judgement: Judgement) -> None:
        """Apply the actions of a binding for failed validations. Failed audit annotations reject the request."""
        for index, decision in enumerate(judgement.decisions):
            if not decision.admits:
                for action in binding.actions:
                    self._act(action, policy, binding, index, decision)
                    self._metrics.count(policy, binding, action.lower(), decision.message, decision.seconds)
            elif decision.failed:
                self._metrics.count(policy, binding, "allow", decision.message, decision.seconds)
        for each in judgement.annotations:
            if each.failed:
                self._refuse(policy, binding, each.value)
                self._metrics.count(policy, binding, "deny", each.value, each.seconds)

    def _act(
        self, action: str, policy: IndexedPolicy[Judge], binding: Binding, index: int, decision: ValidationDecision
    ) -> None:
        match action:
            case "Deny":
                self._refuse(policy, binding, decision.message, decision.reason)
            case "Warn":
                which = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
                self._attributes.notes.warn(f"Validation failed for {which}: {decision.message}")
            case "Audit":
                self._attributes.notes.annotate(_FAILURE, _failure(policy, binding, index, decision))

    def _refuse(self, policy: IndexedPolicy[Judge], binding: Binding | None, why: str, reason: str = "Invalid") -> None:
        if self.refusal is None:
            bound = "" if binding is None else f" with binding '{binding.name}'"
            message = f"ValidatingAdmissionPolicy '{policy.name}'{bound} denied request: {why}"
            self.refusal = _refusal(self._attributes, message, reason)


class _Metrics:
    def __init__(self, registry: Registry) -> None:
        self._checks = Counters(_CHECKS, registry)
        self._seconds = Histograms(_SECONDS, registry)

    def count(self, policy: IndexedPolicy[Judge], binding: Binding, action: str, message: str, seconds: float) -> None:
        """Count a validation that did not hold or failed."""
        error = next((label for begins, label in _ERROR_TYPES if message.startswith(begins)), "invalid_error")
        labels = policy.name, binding.name, error, action
        self._checks.add(*labels)
        self._seconds.observe(seconds, *labels)


class ValidatingAdmissionPolicyConfiguration(PolicyConfiguration):
    """The document that configures the plugin."""

    kind: str = "ValidatingAdmissionPolicyConfiguration"


def validating_admission_policy(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin ValidatingAdmissionPolicy."""
    parts.configuration.document(
        "ValidatingAdmissionPolicy", {V1: ValidatingAdmissionPolicyConfiguration}, no_manifests
    )
    registry, run = parts.runtime.registry, parts.offload.run
    return ValidatingPolicies(parts.store, parts.kinds, parts.authorizer, registry, run).plugin()


def _compiled(spec: Tree) -> Judge:
    from apiserver_stub.admission.policies.validator import ValidatingProgram  # loads CEL, which may not be needed

    return ValidatingProgram(spec)


def _refusal(attributes: Attributes, why: str, reason: str) -> ApiError:
    """Return an error with the message of Forbidden and the given reason."""
    kind, name = attributes.kind, subject_of(attributes)
    message = forbidden(kind.group, kind.plural, name, why).message
    details = Details(name=name, group=kind.group, kind=kind.plural, causes=(Cause(message=why),))
    return _REFUSALS.get(reason, Invalid)(message, details)


def _failure(policy: IndexedPolicy[Judge], binding: Binding, index: int, decision: ValidationDecision) -> str:
    """Return the annotation of a validation that does not hold, as Go writes JSON."""
    failure = {
        "message": decision.message,
        "policy": policy.name,
        "binding": binding.name,
        "expressionIndex": index,
        "validationActions": binding.actions,
    }
    text = msgspec.json.encode([failure]).decode()
    for mark, escape in _ESCAPES.items():
        text = text.replace(mark, escape)
    return text


def _cut(value: str) -> str:
    return value.encode()[:_LONGEST_VALUE].decode(errors="ignore")
