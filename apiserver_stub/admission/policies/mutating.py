"""The plugin MutatingAdmissionPolicy: CEL policies change objects on create, update and connect (KEP-3962).

The matching policies, bindings and parameters are determined from the original object. Policies then run in the order
of their names, and each one, including its match conditions, sees the changes of those before it. A failure rejects the
request, unless the failure policy is `Ignore`: then earlier changes are kept. A policy that changes the object requests
reinvocation of mutating plugins; policies that allow reinvocation then run again if others have changed the object.
"""

from collections.abc import Awaitable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from apiserver_stub.admission.chain import ALL, AdmissionPlugin, Attributes, Operation, Rule
from apiserver_stub.admission.configuration import V1, PolicyConfiguration, no_manifests
from apiserver_stub.admission.matching import Matcher
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.admission.policies.index import Binding, IndexedPolicy, PolicyIndex
from apiserver_stub.admission.policies.inputs import RequestInputs, is_exempt, subject_of
from apiserver_stub.admission.policies.mutation import MutationError, MutationTarget, Mutator
from apiserver_stub.admission.policies.parameters import ConfigurationError, Parameters
from apiserver_stub.admission.review import converted
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.values.trees import deep_copy
from controller_manager.common.api.errors import ApiError, Cause, Details, Forbidden
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.metrics import Counters, Family, Histograms
from controller_manager.common.base.registry import Registry

NAME = "MutatingAdmissionPolicy"
_GROUP = f"admissionregistration.{GROUP_DOMAIN}"
_RESOURCES = f"mutatingadmissionpolicies.{_GROUP}", f"mutatingadmissionpolicybindings.{_GROUP}"
_OPERATIONS: tuple[Operation, ...] = ("create", "update", "connect")
_LABELS = ("policy", "policy_binding", "error_type")
_CHECKS = Family(
    "apiserver_mutating_admission_policy_check_total",
    "Number of mutations, by error type.",
    "counter",
    _LABELS,
    stability="ALPHA",
)
_SECONDS = Family(
    "apiserver_mutating_admission_policy_check_duration_seconds",
    "Seconds spent in mutations, by error type.",
    "histogram",
    _LABELS,
    (0.0000005, 0.001, 0.01, 0.1, 1.0),
    stability="ALPHA",
)
_ERROR_TYPES: Mapping[str, str] = MappingProxyType({
    "compilation": "compile_error", "validation failed due to running out of cost budget": "out_of_budget",
})  # fmt: skip


class _Denied(Forbidden):
    """The error of a policy that could not be applied."""

    reason = "Invalid"


class _Invocation(NamedTuple):
    """A policy that concerns a request, in a version, by one binding and with one parameter."""

    policy: IndexedPolicy[Mutator]
    program: Mutator
    binding: Binding
    info: ResourceInfo
    params: Tree | None

    @property
    def key(self) -> tuple[str, ...]:
        """Return the identity of the invocation."""
        metadata = (self.params or {}).get("metadata") or {}
        return self.policy.name, self.binding.name, metadata.get("namespace", ""), metadata.get("name", "")


class _Failure(NamedTuple):
    """An error of a policy or one of its bindings."""

    policy: IndexedPolicy[Mutator]
    binding: Binding | None
    why: str
    refusal: type[ApiError] = Forbidden

    @property
    def message(self) -> str:
        """Return the message for the caller."""
        if self.binding is None:
            return f'policy "{self.policy.name}" denied request: {self.why}'
        return f"policy '{self.policy.name}' with binding '{self.binding.name}' denied request: {self.why}"


class _Again:
    """The invocations that are repeated: those that allow reinvocation and ran before a change.

    `output` is the object after the first round, if it is needed.
    """

    def __init__(self) -> None:
        self.output: Tree | None = None
        self.wanted: set[tuple[str, ...]] = set()
        self._invoked: set[tuple[str, ...]] = set()

    def invoked(self, key: tuple[str, ...]) -> None:
        """Record an invocation that allows reinvocation."""
        self._invoked.add(key)

    def changed(self) -> None:
        """Mark all previous invocations for reinvocation."""
        self.wanted |= self._invoked
        self._invoked = set()

    def __bool__(self) -> bool:
        return bool(self._invoked or self.wanted)


class MutatingPolicies:
    """The plugin."""

    def __init__(self, parts: AdmissionParts) -> None:
        self._parts = parts
        self._matcher = Matcher(parts.store, parts.kinds)
        self._index: PolicyIndex[Mutator] = PolicyIndex(
            parts.store, self._matcher, _RESOURCES, _compiled, parts.offload.run
        )
        self._parameters = Parameters(parts.store, parts.kinds)
        self._metrics = _Metrics(parts.runtime.registry)

    def plugin(self) -> AdmissionPlugin:
        """Return the plugin for the chain."""
        rule = Rule(self.mutate, _OPERATIONS, (ALL,), (ALL,))
        return AdmissionPlugin(NAME, mutating=(rule,), read=self._index.read)

    def mutate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Apply the policies to the object, if any. Raises the error of a policy that could not be applied."""
        return self._mutate(attributes) if self._index and not is_exempt(attributes.kind) else None

    async def _mutate(self, attributes: Attributes) -> None:
        inputs = RequestInputs(attributes, self._parts.store, self._parts.authorizer)
        if next(self._index.matching(attributes, inputs), None) is None:
            return
        failures: list[_Failure] = []
        invocations = await self._invocations(inputs, failures)
        if invocations:
            failures += await self._invoke(inputs, invocations)
        fatal = [failure for failure in failures if failure.policy.fails]
        if fatal:
            raise _refusal(attributes, fatal)

    async def _invocations(self, inputs: RequestInputs, failures: list[_Failure]) -> Sequence[_Invocation]:
        """Return the invocations for the original request; add those that cannot be applied to `failures`."""
        found: list[_Invocation] = []
        for policy, info in list(self._index.matching(inputs.attributes)):
            try:
                if policy.param_kind is not None:
                    self._parameters.resource(policy.param_kind)
            except ConfigurationError as error:
                failures.append(_Failure(policy, None, f"failed to configure policy: {error}"))
                continue
            program = policy.program or await self._index.program(policy)
            policy.exclusion = program.exclusion
            for binding in policy.bindings:
                try:
                    parameters = await self._bound(policy, binding, info, inputs)
                except (ConfigurationError, ApiError) as error:
                    failures.append(_Failure(policy, binding, f"failed to configure binding: {error}"))
                    continue
                found += [_Invocation(policy, program, binding, info, params) for params in parameters]
        return found

    async def _bound(
        self, policy: IndexedPolicy[Mutator], binding: Binding, info: ResourceInfo, inputs: RequestInputs
    ) -> Sequence[Tree | None]:
        """Return the parameters of a binding; empty if the binding does not match the request."""
        attributes = inputs.attributes
        if binding.criteria is not None and self._matcher.match(binding.criteria, attributes) is None:
            return ()
        await inputs.version(info)
        return await self._parameters.collect(policy.param_kind, binding.parameters, attributes.namespace)

    async def _invoke(self, inputs: RequestInputs, invocations: Sequence[_Invocation]) -> Sequence[_Failure]:
        """Run the invocations in order and update the object; return the failures."""
        attributes = inputs.attributes
        again = attributes.reinvocation.kept.setdefault(NAME, _Again())
        if attributes.reinvocation.again and again.output != attributes.object:
            again.changed()
        session = _Session(inputs, again, self._parts)
        for invocation in invocations:
            await self._apply(session, invocation)
        await session.finish()
        again.output = deep_copy(attributes.object) if again and not attributes.reinvocation.again else None
        return session.failures

    async def _apply(self, session: "_Session", invocation: _Invocation) -> None:
        """Make one invocation: all mutations of a policy, if its conditions hold."""
        if session.excludes(invocation):
            return
        program, again, inputs = invocation.program, session.again, session.inputs
        versioned = await inputs.version(invocation.info)
        try:
            if not await program.matches(inputs, versioned, invocation.params, self._parts.offload.run):
                return
        except MutationError as error:
            session.fail(invocation, str(error))
            return
        if inputs.attributes.reinvocation.again and invocation.key not in again.wanted:
            return
        before = versioned.object
        for number in range(program.mutations if before is not None else 0):
            began, problem = monotonic(), ""
            try:
                await session.mutate(invocation, number)
            except MutationError as error:
                problem = str(error)
                session.fail(invocation, problem)
            except ApiError as error:
                problem = error.message
                raise
            finally:
                self._metrics.count(invocation, problem, monotonic() - began)
        if (await inputs.version(invocation.info)).object != before:
            session.changed()
        if program.again:
            again.invoked(invocation.key)


class _Session:
    """The state of the invocations for one request: the current object and the failures."""

    def __init__(self, inputs: RequestInputs, again: _Again, parts: AdmissionParts) -> None:
        self.inputs = inputs
        self.again = again
        self.failures: list[_Failure] = []
        self._run = parts.offload.run
        self._last: ResourceInfo | None = None
        self._frame: list[Any] | None = None

    def excludes(self, invocation: _Invocation) -> bool:
        """Return whether cheap match conditions exclude the request in its current state."""
        exclusion = invocation.program.exclusion
        if exclusion is None or invocation.info is not self.inputs.attributes.kind:
            return False
        if self._frame is None:
            self._frame = exclusion.frame(self.inputs)
        return exclusion.excludes(self._frame)

    async def mutate(self, invocation: _Invocation, number: int) -> None:
        """Make one mutation. Raises `MutationError`, and what `Mutator.mutate` does."""
        info, attributes = invocation.info, self.inputs.attributes
        target, asked = MutationTarget(info, attributes), MutationTarget(attributes.kind, attributes)
        versioned = await self.inputs.version(info)
        found = await invocation.program.mutate(number, target, self.inputs, versioned, invocation.params, self._run)
        if target.kind != asked.kind and not info.custom:
            why = f"converting ({_shown(target)}) to ({_shown(asked)}): unknown conversion"
            raise MutationError(why)
        self.inputs.change(info, found)
        self._last, self._frame = info, None

    def fail(self, invocation: _Invocation, why: str) -> None:
        """Record the failure of an invocation."""
        self.failures.append(_Failure(invocation.policy, invocation.binding, why, _Denied))

    def changed(self) -> None:
        """Request reinvocation because the object has changed."""
        self.again.changed()
        self.inputs.attributes.reinvocation.ask()

    async def finish(self) -> None:
        """Store the result of the last mutation as the object of the request. Raises the errors of conversion."""
        if self._last is None:
            return
        self.changed()
        attributes = self.inputs.attributes
        found: Any = (await self.inputs.version(self._last)).object
        found = await converted(found, self._last, attributes.kind, attributes.subresource)
        if attributes.reinvocation.sent is None and attributes.operation == "update":
            attributes.reinvocation.sent = deep_copy(attributes.tree)
        attributes.tree.clear()
        attributes.tree.update(found)


class _Metrics:
    """The metrics of the plugin."""

    def __init__(self, registry: Registry) -> None:
        self._checks = Counters(_CHECKS, registry)
        self._seconds = Histograms(_SECONDS, registry)

    def count(self, invocation: _Invocation, problem: str, seconds: float) -> None:
        """Count a mutation, or its error."""
        error = "no_error"
        if problem:
            error = next(
                (label for begins, label in _ERROR_TYPES.items() if problem.startswith(begins)), "invalid_error"
            )
        labels = invocation.policy.name, invocation.binding.name, error
        self._checks.add(*labels)
        self._seconds.observe(seconds, *labels)


class MutatingAdmissionPolicyConfiguration(PolicyConfiguration):
    """The document that configures the plugin."""

    kind: str = "MutatingAdmissionPolicyConfiguration"


def mutating_admission_policy(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin MutatingAdmissionPolicy."""
    parts.configuration.document("MutatingAdmissionPolicy", {V1: MutatingAdmissionPolicyConfiguration}, no_manifests)
    return MutatingPolicies(parts).plugin()


def _compiled(spec: Tree) -> Mutator:
    from apiserver_stub.admission.policies.mutator import MutatingProgram  # loads CEL, which many servers do not need

    return MutatingProgram(spec)


def _shown(target: MutationTarget) -> str:
    return f"{target.kind.version}.{target.kind.kind}"


def _refusal(attributes: Attributes, failures: Sequence[_Failure]) -> ApiError:
    """Return the error with the message of the first failure, and all failures as causes."""
    kind = attributes.kind
    causes = tuple(Cause(message=failure.message) for failure in failures)
    details = Details(name=subject_of(attributes), group=kind.group, kind=kind.plural, causes=causes)
    return failures[0].refusal(failures[0].message, details)
