"""Backoff for deleting failed daemon pods, so that controller and kubelet do not loop; pure."""

from controller_manager.common.api.resource import Key

FIRST, LONGEST = 1.0, 900.0
# Seconds without a failure after which the backoff of a node is reset.
_FORGOTTEN = 2 * LONGEST


class FailedPodsBackoff:
    """The backoff by daemon set and node, which doubles with each deleted failed pod, up to 15 minutes.

    A change of a set's spec resets it. Times are seconds of one clock.
    """

    def __init__(self) -> None:
        # By key: uid and generation, and per node the time of the last deletion and the delay of the next.
        self._sets: dict[Key, tuple[tuple[str, int], dict[str, tuple[float, float]]]] = {}

    def wait(self, key: Key, node: str, now: float) -> float:
        """Return the seconds until a failed pod may be deleted, or 0."""
        _, nodes = self._sets.get(key, (None, {}))
        since, seconds = nodes.get(node, (now, 0.0))
        return max(0.0, since + seconds - now)

    def note(self, key: Key, node: str, now: float) -> None:
        """Record the deletion of a failed pod of the node."""
        nodes = self._sets[key][1]
        since, seconds = nodes.get(node, (now, 0.0))
        is_new = not seconds or now - since > _FORGOTTEN
        nodes[node] = now, FIRST if is_new else min(2 * seconds, LONGEST)

    def begin(self, key: Key, uid: str, generation: int, now: float) -> None:
        """Start a sync: drop the backoff of another generation, and of nodes without recent failures."""
        state, nodes = self._sets.get(key, (None, {}))
        if state != (uid, generation):
            nodes = {}
        kept = {node: one for node, one in nodes.items() if now - one[0] <= _FORGOTTEN}
        self._sets[key] = (uid, generation), kept

    def forget(self, key: Key) -> None:
        """Drop the backoff of a set that was deleted."""
        self._sets.pop(key, None)
