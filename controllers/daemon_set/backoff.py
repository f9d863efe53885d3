"""How long the failed pods of a node are left alone, so that a set and a node do not fight over one; pure."""

from controller_manager.common.api.resource import Key

FIRST, LONGEST = 1.0, 900.0
# A node whose pods failed no more for so long begins anew.
_FORGOTTEN = 2 * LONGEST


class FailedPodsBackoff:
    """By daemon set and node: seconds that double with each failed pod that is deleted, up to a quarter of an hour.

    A change of the specification of a set begins anew. Times are seconds of one clock.
    """

    def __init__(self) -> None:
        # By key: uid and generation, and by node when the last was deleted and how long the next one has to wait.
        self._sets: dict[Key, tuple[tuple[str, int], dict[str, tuple[float, float]]]] = {}

    def wait(self, key: Key, node: str, now: float) -> float:
        """Return the seconds that a failed pod is still to be left alone; 0 if it may be deleted."""
        _, nodes = self._sets.get(key, (None, {}))
        since, seconds = nodes.get(node, (now, 0.0))
        return max(0.0, since + seconds - now)

    def note(self, key: Key, node: str, now: float) -> None:
        """A failed pod of the node is deleted."""
        nodes = self._sets[key][1]
        since, seconds = nodes.get(node, (now, 0.0))
        is_new = not seconds or now - since > _FORGOTTEN
        nodes[node] = now, FIRST if is_new else min(2 * seconds, LONGEST)

    def begin(self, key: Key, uid: str, generation: int, now: float) -> None:
        """A look at a set begins: forget what was of another state of it, and nodes where all is well again."""
        state, nodes = self._sets.get(key, (None, {}))
        if state != (uid, generation):
            nodes = {}
        kept = {node: one for node, one in nodes.items() if now - one[0] <= _FORGOTTEN}
        self._sets[key] = (uid, generation), kept

    def forget(self, key: Key) -> None:
        """There is no such set any more."""
        self._sets.pop(key, None)
