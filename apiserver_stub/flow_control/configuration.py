"""FlowSchemas and PriorityLevelConfigurations as stored (KEP-1040), and the mandatory ones."""

from collections.abc import Iterable, Mapping
from functools import cache

import msgspec

from apiserver_stub.kinds.strategies.flow_control import MANDATORY, suggested
from controller_manager.common.api.conditions import Condition
from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.platform import GROUP_DOMAIN

GROUP = f"flowcontrol.apiserver.{GROUP_DOMAIN}"
FLOW_SCHEMAS = f"flowschemas.{GROUP}"
PRIORITY_LEVELS = f"prioritylevelconfigurations.{GROUP}"
EXEMPT, CATCH_ALL = "exempt", "catch-all"
DANGLING = "Dangling"
_ENTROPY = 60  # bits of the flow hash used for dealing hands


class Named(Model):
    """A subject, or a reference, by its name."""

    name: str = ""
    namespace: str = ""


class FlowSubject(Model):
    """Whom a rule is about, by kind: `User`, `Group` or `ServiceAccount`."""

    kind: str = ""
    user: Named | None = None
    group: Named | None = None
    service_account: Named | None = None


class FlowResourceRule(Model):
    """Verbs on resources, in namespaces or of the cluster."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    cluster_scope: bool = False
    namespaces: tuple[str, ...] = ()


class NonResourceRule(Model):
    """Verbs on paths."""

    verbs: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")


class FlowRule(Model):
    """The subjects and requests that a schema matches."""

    subjects: tuple[FlowSubject, ...] = ()
    resource_rules: tuple[FlowResourceRule, ...] = ()
    non_resource_rules: tuple[NonResourceRule, ...] = ()


class DistinguisherMethod(Model):
    """How requests of one schema are divided into flows: `ByUser` or `ByNamespace`."""

    type: str = ""


class FlowSchemaSpec(Model):
    """`spec` of a FlowSchema."""

    priority_level_configuration: Named = Named()
    matching_precedence: int = 1000
    distinguisher_method: DistinguisherMethod | None = None
    rules: tuple[FlowRule, ...] = ()


class FlowSchemaStatus(Model):
    """`status` of a FlowSchema."""

    conditions: tuple[Condition, ...] = ()


class FlowSchema(Object):
    """Which requests belong to which priority level, and how they are divided into flows."""

    spec: FlowSchemaSpec = FlowSchemaSpec()
    status: FlowSchemaStatus = FlowSchemaStatus()

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.metadata.name

    @property
    def level(self) -> str:
        """The name of its priority level."""
        return self.spec.priority_level_configuration.name


class Queuing(Model):
    """Queues of a priority level: their number, the hand size of a flow, and the maximum length."""

    queues: int = 64
    hand_size: int = 8
    queue_length_limit: int = 50


class LimitResponse(Model):
    """The response to requests without a free seat: `Queue` or `Reject`."""

    type: str = ""
    queuing: Queuing | None = None


class Limited(Model):
    """A limited level; percentages are of its nominal seats."""

    nominal_concurrency_shares: int = 30
    limit_response: LimitResponse = LimitResponse()
    lendable_percent: int = 0
    borrowing_limit_percent: int | None = None


class Exempt(Model):
    """A level whose requests never wait."""

    nominal_concurrency_shares: int = 0
    lendable_percent: int = 0


class PriorityLevelSpec(Model):
    """`spec` of a PriorityLevelConfiguration; `type` is `Limited` or `Exempt`."""

    type: str = ""
    limited: Limited | None = None
    exempt: Exempt | None = None


class PriorityLevelConfiguration(Object):
    """The concurrency that a class of requests has."""

    spec: PriorityLevelSpec = PriorityLevelSpec()

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.metadata.name

    @property
    def is_exempt(self) -> bool:
        """Return whether its requests never wait."""
        return self.spec.exempt is not None

    @property
    def queuing(self) -> Queuing | None:
        """Its queues; None where requests are rejected, or never limited."""
        return None if self.spec.limited is None else self.spec.limited.limit_response.queuing

    @property
    def shares(self) -> Limited | Exempt:
        """Its share of the seats of the server."""
        found = self.spec.limited or self.spec.exempt
        assert found is not None
        return found

    @property
    def is_usable(self) -> bool:
        """Return whether it is consistent: objects stored before validation may be invalid."""
        spec, limited = self.spec, self.spec.limited
        if (spec.type == "Limited") != (limited is not None) or (spec.type == "Exempt") != (spec.exempt is not None):
            return False
        if (spec.type == "Exempt") != (self.name == EXEMPT) or not (limited or spec.exempt):
            return False
        if limited is None:
            return True
        queuing = limited.limit_response.queuing
        if (limited.limit_response.type == "Reject") != (queuing is None):
            return False
        return queuing is None or _deals(queuing)


def _deals(queuing: Queuing) -> bool:
    """Return whether hands can be dealt: distinct queues per flow from the bits of its hash."""
    deck, hand = queuing.queues, queuing.hand_size
    return 0 < hand <= deck <= 1 << 26 and (deck**hand - 1).bit_length() <= _ENTROPY


@cache
def mandatory() -> tuple[Mapping[str, PriorityLevelConfiguration], Mapping[str, FlowSchema]]:
    """Return the levels and schemas that hold also while they are not stored."""
    specs = suggested()
    levels, schemas = (
        {name: {"metadata": {"name": name}, "spec": found[name]} for name in sorted(MANDATORY)}
        for found in (specs.levels, specs.schemas)
    )
    return (
        msgspec.convert(levels, dict[str, PriorityLevelConfiguration]),
        msgspec.convert(schemas, dict[str, FlowSchema]),
    )


def in_order(schemas: Iterable[FlowSchema]) -> list[FlowSchema]:
    """Return schemas in the order in which requests are compared with them."""
    return sorted(schemas, key=lambda schema: (schema.spec.matching_precedence, schema.name))
