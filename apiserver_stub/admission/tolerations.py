"""Every pod tolerates for a while that its node is not ready or out of reach, unless it says how long itself."""

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.api_request import Tree
from apiserver_stub.kinds.trees import get_in, put_in
from controller_manager.api.platform import PLATFORM_DOMAIN

_SECONDS = 300
_SIGNS = tuple(f"node.{PLATFORM_DOMAIN}/{sign}" for sign in ("not-ready", "unreachable"))
_TOLERATIONS = ("spec", "tolerations")


async def default_toleration_seconds(attributes: Attributes) -> None:
    """Give a pod that is created or updated the tolerations that it lacks.

    They are those of the usual plug-in of that purpose, DefaultTolerationSeconds.
    """
    pod = attributes.tree
    given = get_in(pod, _TOLERATIONS) or []
    lacking = [sign for sign in _SIGNS if not any(_speaks_of(sign, one) for one in given)]
    if lacking:
        spec = dict(pod.get("spec") or {})
        spec["tolerations"] = [*given, *map(_for_a_while, lacking)]
        put_in(pod, ("spec",), spec)


def _speaks_of(sign: str, toleration: Tree) -> bool:
    return toleration.get("key", "") in ("", sign) and toleration.get("effect", "") in ("", "NoExecute")


def _for_a_while(sign: str) -> Tree:
    return {"key": sign, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _SECONDS}
