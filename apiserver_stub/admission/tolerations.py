"""Lists of tolerations, merged: what another one tolerates anyway is left out; pure."""

from collections.abc import Sequence

from apiserver_stub.api_request import Tree


def merged(first: Sequence[Tree], second: Sequence[Tree]) -> list[Tree]:
    """Return both lists as one, in order; of those that tolerate the same the first stays."""
    both, found = [*first, *second], list[Tree]()
    for index, each in enumerate(both):
        later = (other for other in both[index + 1 :] if other != each)
        if not any(is_superset(other, each) for other in (*found, *later)):
            found.append(each)
    return found


def is_superset(one: Tree, other: Tree) -> bool:
    """Tell whether a toleration covers all that another one does."""
    if one == other:
        return True
    operator = one.get("operator", "")
    if one.get("key", "") not in (other.get("key", ""), "" if operator == "Exists" else other.get("key", "")):
        return False
    effect = one.get("effect", "")
    if effect not in ("", other.get("effect", "")):
        return False
    if effect == "NoExecute" and (seconds := one.get("tolerationSeconds")) is not None:
        shorter = other.get("tolerationSeconds")
        if shorter is None or shorter > seconds:
            return False
    if operator == "Exists":
        return True
    same = other.get("operator", "") == "Equal" and other.get("value", "") == one.get("value", "")
    return operator in ("", "Equal") and same
