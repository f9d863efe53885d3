"""Find the outcome of a transaction whose response was lost from the state of its rows. The decision is a table."""

from collections.abc import Sequence

from apiserver_stub.storage.etcd.client import EtcdClient
from apiserver_stub.storage.etcd.layout import Layout, final_states
from apiserver_stub.storage.interface import Write
from controller_manager.common.api.tree import Tree

_LONGEST = 2.0  # timeout of a response in seconds


def can_be_sent_again(writes: Sequence[Write]) -> bool:
    """Return whether a transaction can be sent again without being applied twice, even if the first request arrives
    late. This holds if it changes a row at an expected revision, since that revision never returns. It does not hold
    for creates only: the row may be deleted before the first request arrives.
    """
    return any(write.expected for write in writes)


def made_at(layout: Layout, write: Write, now: Tree | None, before: Tree | None, noted: Tree | None) -> int | None:
    """Return the revision of a write, 0 if it was not and cannot be applied, None if unknown. 0 holds only after the
    same write was sent again and got a conflict.

    | write | key | applied |
    |--|--|--|
    | update, create | has the written value | at its revision |
    | update | had the written value before the current one | at that revision |
    | update | had the expected revision before the current one | never |
    | create | had the written value at its creation | at that revision |
    | delete | does not exist, and the stored final state is of this deletion | at that revision |
    | delete | exists since before the expected revision | never |
    | | otherwise | unknown |

    `now` is the key, `before` its earlier state (see `earlier`), `noted` the key of final states.
    """
    expected = layout.of_etcd(write.expected)
    if write.deleted:
        if now is not None:
            return 0 if now["create_revision"] <= expected else None
        is_ours = noted is not None and (layout.key(write.resource, write.key), write.data) in final_states(
            noted.get("value", b"")
        )
        return layout.revision(noted["mod_revision"]) if noted is not None and is_ours else None
    for state in (now, before):
        if state is not None and state.get("value", b"") == write.data:
            return layout.revision(state["mod_revision"])
    if write.expected and before is not None and before["mod_revision"] == expected:
        return 0
    return None


def earlier(write: Write, now: Tree) -> int:
    """Return the etcd revision at which the key must be read once more."""
    revision: int = now["mod_revision"] - 1 if write.expected else now["create_revision"]
    return revision


class Fates:
    """Reads the state from etcd."""

    def __init__(self, client: EtcdClient, layout: Layout) -> None:
        self._client = client
        self._layout = layout

    async def made_at(self, writes: Sequence[Write]) -> int | None:
        """Return the revision of the writes, 0 if they will never happen, None if unknown. Raises `GrpcError`."""
        found = [await self._made_at(write) for write in writes]
        return 0 if 0 in found else found[0] if len(set(found)) == 1 else None

    async def _made_at(self, write: Write) -> int | None:
        layout, key = self._layout, self._layout.key(write.resource, write.key)
        now, before, noted = await self._state(key), None, None
        if write.deleted and now is None:
            noted = await self._state(layout.deleted)
        elif now is not None and not write.deleted:
            before = await self._state(key, earlier(write, now))
        return made_at(layout, write, now, before, noted)

    async def _state(self, key: bytes, revision: int = 0) -> Tree | None:
        answer = await self._client.read("Range", {"key": key, "revision": revision}, _LONGEST)
        return next(iter(answer.get("kvs", ())), None)
