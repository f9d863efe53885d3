"""Reports type errors in the expressions of validating admission policies in their status."""

from controller_manager.common.api.admissionregistration import GROUP, VALIDATING_ADMISSION_POLICIES
from controller_manager.framework import Context, ControllerSpec, For, Int32, Key, Options, PolicyRule, flag

from .schemas import Schemas
from .types import Kinds, param_kind

MANAGER = "validatingadmissionpolicy-status"


class ValidatingAdmissionPolicyStatusOptions(Options):
    """Validating admission policy status controller"""

    concurrent_validating_admission_policy_status_syncs: Int32 = flag(
        5, "validating admission policies looked at at the same time", minimum=1
    )


# Observed: a policy, the resources of the server, and the descriptions of their kinds.
# Decided, by its generation:            Done:
#   observed already                     nothing
#   a newer one                          its expressions are checked against each kind that its rules name, and of its
#                                        parameters; the warnings are applied, and the generation that they are of
# Rules with wildcards name no kinds, and of a policy ten at most are checked. What has no description is not checked.


class ValidatingAdmissionPolicyStatusController:
    """Reconciles one policy."""

    def __init__(self, context: Context, _: ValidatingAdmissionPolicyStatusOptions) -> None:
        self._client = context.client
        self._policies = context.informers.get(VALIDATING_ADMISSION_POLICIES)
        self._kinds = Kinds(context.client)
        self._schemas = Schemas(context.client)

    async def reconcile(self, key: Key) -> None:
        """Check the expressions of policy `key`, if that was not done."""
        policy = self._policies.get(key)
        if policy is None or policy.metadata.generation <= policy.status.observed_generation:
            return
        from .type_checking import warnings  # CEL, which a manager can do without

        spec = policy.spec
        kinds = await self._kinds.of(spec)
        declared = [(kind, found) for kind in kinds if (found := await self._schemas.declared(kind)) is not None]
        params = None if spec.param_kind is None else await self._schemas.declared(param_kind(spec.param_kind))
        status = {
            "observedGeneration": policy.metadata.generation,
            "typeChecking": {"expressionWarnings": warnings(spec, declared, params)},
        }
        await self._client.apply(
            VALIDATING_ADMISSION_POLICIES,
            key,
            {"status": status},
            MANAGER,
            uid=policy.metadata.uid,
            subresource="status",
        )


SPECS = (
    ControllerSpec(
        name="validatingadmissionpolicy-status-controller",
        queue="validatingadmissionpolicy-status",
        reconciler=ValidatingAdmissionPolicyStatusController,
        options=ValidatingAdmissionPolicyStatusOptions,
        workers=lambda options: options.concurrent_validating_admission_policy_status_syncs,
        watches=(For(VALIDATING_ADMISSION_POLICIES),),
        rbac=(
            PolicyRule(groups=(GROUP,), resources=("validatingadmissionpolicies",), verbs=("get", "list", "watch")),
            PolicyRule(groups=(GROUP,), resources=("validatingadmissionpolicies/status",), verbs=("patch",)),
        ),
    ),
)
