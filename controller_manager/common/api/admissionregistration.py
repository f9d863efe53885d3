"""The group admissionregistration.k8s.io: the fields of policies that type checking needs."""

from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.resource import Resource

GROUP = f"admissionregistration.{GROUP_DOMAIN}"


class ParamKind(Model):
    """`spec.paramKind`."""

    api_version: str = ""
    kind: str = ""


class ResourceRule(Model):
    """`spec.matchConstraints.resourceRules[]`: the resources that a policy applies to; `*` means all."""

    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()


class MatchConstraints(Model):
    """`spec.matchConstraints`."""

    resource_rules: tuple[ResourceRule, ...] = ()


class Variable(Model):
    """`spec.variables[]`."""

    name: str = ""
    expression: str = ""


class Validation(Model):
    """`spec.validations[]`."""

    expression: str = ""
    message_expression: str = ""


class ValidatingAdmissionPolicySpec(Model):
    """`spec`."""

    param_kind: ParamKind | None = None
    match_constraints: MatchConstraints = MatchConstraints()
    variables: tuple[Variable, ...] = ()
    validations: tuple[Validation, ...] = ()


class ValidatingAdmissionPolicyStatus(Model):
    """`status`."""

    observed_generation: int = 0


class ValidatingAdmissionPolicy(Object):
    """A policy that validates requests."""

    spec: ValidatingAdmissionPolicySpec = ValidatingAdmissionPolicySpec()
    status: ValidatingAdmissionPolicyStatus = ValidatingAdmissionPolicyStatus()


VALIDATING_ADMISSION_POLICIES = Resource(
    GROUP, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False, ValidatingAdmissionPolicy
)
