"""Builds the allocation in the status of a claim from the devices found; pure."""

from collections.abc import Callable, Iterable, Sequence

from controller_manager.common.api.core import Node, NodeSelector, NodeSelectorTerm
from controller_manager.common.api.devices import (
    AllocatedConfiguration,
    AllocatedDevice,
    AllocationResult,
    DeviceAllocationResult,
)
from controller_manager.common.api.selectors import SelectorRequirement

from .allocator import Pick
from .device_requests import DeviceRequest, WantedClaim

_FROM_CLASS, _FROM_CLAIM = "FromClass", "FromClaim"


def allocation_of(
    wanted: WantedClaim, picks: Sequence[Pick], node: Node, new_id: Callable[[], str]
) -> AllocationResult:
    """Return the allocation of a claim on a node; `new_id` creates share IDs."""
    results = tuple(_result(pick, new_id) for pick in picks)
    devices = DeviceAllocationResult(results=results, config=tuple(_configuration(wanted, picks)))
    return AllocationResult(devices=devices, node_selector=node_selector(picks, node))


def node_selector(picks: Iterable[Pick], node: Node) -> NodeSelector | None:
    """Return a selector for the nodes that can access all devices; None for every node."""
    expressions: list[SelectorRequirement] = []
    fields: list[SelectorRequirement] = []
    for pick in picks:
        spec, device = pick.candidate.slice.spec, pick.candidate.device
        by = device if spec.per_device_node_selection else spec
        if by.node_name or device.binds_to_node:
            name = SelectorRequirement(key="metadata.name", operator="In", values=(node.metadata.name,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(name,)),))
        for term in by.node_selector.node_selector_terms if by.node_selector is not None else ():
            expressions += (one for one in term.match_expressions if one not in expressions)
            fields += (one for one in term.match_fields if one not in fields)
    if not expressions and not fields:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(term,))


def _result(pick: Pick, new_id: Callable[[], str]) -> AllocatedDevice:
    request, candidate, consumed = pick
    return AllocatedDevice(
        request=request.full_name,
        driver=candidate.id.driver,
        pool=candidate.id.pool,
        device=candidate.id.device,
        admin_access=request.admin or None,
        tolerations=request.wanted.tolerations,
        binding_conditions=candidate.device.binding_conditions,
        binding_failure_conditions=candidate.device.binding_failure_conditions,
        share_id=new_id() if consumed is not None else None,
        consumed_capacity={name: str(amount) for name, amount in (consumed or {}).items()},
    )


def _configuration(wanted: WantedClaim, picks: Sequence[Pick]) -> Iterable[AllocatedConfiguration]:
    """Yield the parameters of the used classes with their requests, then those of the claim."""
    used = _used(wanted, picks)
    for one in {request.device_class.metadata.name: request.device_class for request in used}.values():
        names = tuple(request.full_name for request in used if request.device_class is one)
        for config in one.spec.config:
            yield AllocatedConfiguration(source=_FROM_CLASS, requests=names, opaque=config.opaque)
    for config in wanted.claim.spec.devices.config:
        concerned = sum(not {request.base, request.full_name}.isdisjoint(config.requests) for request in used)
        for _ in range(concerned if config.requests else 1):
            yield AllocatedConfiguration(source=_FROM_CLAIM, requests=config.requests, opaque=config.opaque)


def _used(wanted: WantedClaim, picks: Sequence[Pick]) -> list[DeviceRequest]:
    """Return the chosen alternative of each request."""
    names = {pick.request.full_name for pick in picks}
    return [next((one for one in every if one.full_name in names), every[0]) for every in wanted.requests]
