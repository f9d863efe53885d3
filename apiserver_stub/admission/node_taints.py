"""A new node takes no pods until a controller has seen that it is ready: the usual plug-in TaintNodesByCondition."""

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.kinds.trees import dicts, get_in, put_in
from controller_manager.api.platform import PLATFORM_DOMAIN

_TAINTS = ("spec", "taints")
_NOT_READY = {"key": f"node.{PLATFORM_DOMAIN}/not-ready", "effect": "NoSchedule"}


async def taint_new_node(attributes: Attributes) -> None:
    """Give a node that is created the taint of one that is not ready, unless it has it."""
    node = attributes.tree
    taints = get_in(node, _TAINTS) or []
    if not any({name: one.get(name) for name in _NOT_READY} == _NOT_READY for _, one in dicts(taints)):
        spec = dict(node.get("spec") or {})
        spec["taints"] = [*taints, dict(_NOT_READY)]
        put_in(node, ("spec",), spec)
