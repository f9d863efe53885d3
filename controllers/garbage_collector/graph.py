"""The graph of owners and dependents as observed by the watches; pure: changes go in, tasks come out.

The nodes are the observed objects and, as virtual nodes, every owner that is referred to but was not observed. The
graph does not depend on the order of the changes.

A dependent claims an owner by group, kind, name and uid, in its own namespace. An observed owner may not match a claim
(other kind, name or namespace). Such an owner is looked up as claimed, so that no object is deleted or kept because of
a false reference.
"""

from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple

from controller_manager.common.api.model import ObjectMeta, OwnerReference

MOST_ABSENT = 500
_LINKED_AT_ONCE = 100  # owner references


class ObjectIdentity(NamedTuple):
    """The identity of an object or of a claim. In a claim the namespace is that of the dependent."""

    group: str
    kind: str
    namespace: str
    name: str
    uid: str

    def agrees_with(self, claim: "ObjectIdentity") -> bool:
        """Return whether a claim means this object. A cluster-scoped object may own objects of every namespace."""
        return claim == self or (not self.namespace and claim._replace(namespace="") == self)


class Absent:
    """LRU set of owners known not to exist. Uids are never reused, so they cannot come back."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[ObjectIdentity, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, owner: ObjectIdentity) -> None:
        """Add an owner, without namespace if it is cluster-scoped."""
        self._kept[owner] = None
        self._kept.move_to_end(owner)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def has(self, claim: ObjectIdentity) -> bool:
        """Return whether the claimed owner is known not to exist."""
        for owner in (claim, claim._replace(namespace="")):
            if owner in self._kept:
                self._kept.move_to_end(owner)
                return True
        return False


FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class What(StrEnum):
    """The action on an object."""

    LOOK = "look at"
    """Check whether an object may stay. If it waits for its dependents, check whether it still has to."""
    ORPHAN = "orphan the dependents of"


class Task(NamedTuple):
    """An action on the object with that uid."""

    what: What
    uid: str

    def __str__(self) -> str:
        return f"{self.what} {self.uid}"


class Misplaced(NamedTuple):
    """An object that refers to an owner in another namespace. It is reported as an event."""

    dependent: ObjectIdentity
    owner: ObjectIdentity


Instruction = Task | Misplaced
Steps = Iterator[Iterable[Instruction]]
"""A change of the graph in steps of less than a millisecond. Each step yields the resulting instructions."""
# The claims of an object, and whether it blocks the deletion of the owner.
Links = Mapping[ObjectIdentity, bool]


class GraphNode:
    """An object; virtual while `identity` and `meta` are None."""

    __slots__ = ("_claims", "absent", "blocking", "identity", "loose", "meta", "uid")

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.identity: ObjectIdentity | None = None
        self.meta: ObjectMeta | None = None
        # The number of claims that block its deletion.
        self.blocking = 0
        # The number of its own claims whose owner is absent, does not match, or waits for its dependents.
        self.loose = 0
        # Claims of its dependents that are known to match no existing object.
        self.absent: set[ObjectIdentity] | None = None
        # The uids of its dependents by claim, and whether they block its deletion. Created on demand.
        self._claims: dict[ObjectIdentity, dict[str, bool]] | None = None

    @property
    def is_being_deleted(self) -> bool:
        """Return whether the object is being deleted."""
        return self.meta is not None and self.meta.deletion_timestamp is not None

    @property
    def is_orphaning(self) -> bool:
        """Return whether the object is removed once its dependents do not refer to it any more."""
        return is_orphaning(self.meta)

    @property
    def is_waiting(self) -> bool:
        """Return whether the object is removed once its blocking dependents are gone."""
        return is_waiting(self.meta)

    @property
    def claims(self) -> Mapping[ObjectIdentity, Mapping[str, bool]]:
        """Return the dependents by their claim: their uids, and whether they block its deletion."""
        return self._claims or {}

    def dependents(self) -> Iterator[str]:
        """Yield the uids of all dependents."""
        for group in self.claims.values():
            yield from group

    def is_solid(self, claim: ObjectIdentity) -> bool:
        """Return whether the object matches a claim and does not wait for its dependents."""
        return self.identity is not None and self.identity.agrees_with(claim) and not self.is_waiting

    def attach(self, claim: ObjectIdentity, uid: str, blocks: bool) -> bool:
        """Add a dependent. Return whether it is the first with this claim."""
        if self._claims is None:
            self._claims = {}
        group = self._claims.get(claim)
        if group is None:
            self._claims[claim] = {uid: blocks}
        else:
            group[uid] = blocks
        self.blocking += blocks
        return group is None

    def detach(self, claim: ObjectIdentity, uid: str) -> bool:
        """Remove a dependent. Return whether it was the last one that blocked the deletion."""
        assert self._claims is not None
        group = self._claims[claim]
        blocks = group.pop(uid)
        self.blocking -= blocks
        if not group:
            del self._claims[claim]
            self._claims = self._claims or None
            if self.absent is not None:
                self.absent.discard(claim)
        return blocks and not self.blocking


class Graph:
    """All observed objects and all referenced owners, by uid.

    A change is an iterator that applies its steps. It must be exhausted before the next change begins.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, GraphNode] = {}
        self._absent = Absent(MOST_ABSENT)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[GraphNode]:
        return iter(self._nodes.values())

    def get(self, uid: str) -> GraphNode | None:
        """Return the node of that uid, or None."""
        return self._nodes.get(uid)

    def observe(self, identity: ObjectIdentity, meta: ObjectMeta) -> Steps:
        """Add or update an object."""
        node = self._nodes.get(identity.uid)
        if node is None:
            node = self._nodes[identity.uid] = GraphNode(identity.uid)
        is_new, before = node.identity is None, node.meta
        with self._recounting(node):
            node.identity, node.meta = node.identity or identity, meta
        if is_new:
            yield from self._doubt(node)
        if before is None or before.owner_references != meta.owner_references:
            yield from self._relink(node, node.identity, before, meta)
        if node.is_orphaning and not is_orphaning(before):
            yield (Task(What.ORPHAN, node.uid),)
        elif node.is_waiting and not is_waiting(before):
            for uid in (*node.dependents(), node.uid):
                yield (Task(What.LOOK, uid),)

    def lose(self, identity: ObjectIdentity) -> Steps:
        """Remove an object that was deleted."""
        node = self._observed(identity)
        if node is None:
            return
        if any(map(identity.agrees_with, node.claims)):
            self.note_absent(identity)
        dependents = tuple(node.dependents())
        yield from self._unobserve(node, identity)
        for uid in dependents:
            yield (Task(What.LOOK, uid),)

    def forget(self, identity: ObjectIdentity) -> Steps:
        """Remove an object that is no longer visible. It may still exist."""
        node = self._observed(identity)
        if node is None:
            return
        yield from self._unobserve(node, identity)
        if node.claims:
            yield (Task(What.LOOK, node.uid),)

    def note_absent(self, owner: ObjectIdentity) -> None:
        """Record that an owner does not exist, for as long as an object refers to it, and for some time after that."""
        self._absent.add(owner)
        node = self._nodes.get(owner.uid)
        if node is not None and node.claims:
            node.absent = node.absent or set()
            node.absent.add(owner)

    def is_absent(self, claim: ObjectIdentity) -> bool:
        """Return whether the owner that a claim means is known not to exist."""
        node = self._nodes.get(claim.uid)
        known = node.absent if node is not None else None
        if known and (claim in known or claim._replace(namespace="") in known):
            return True
        return self._absent.has(claim)

    def claimants(self, claim: ObjectIdentity) -> list[Instruction]:
        """Return tasks for the objects with this claim, whose owner was found not to exist."""
        node = self._nodes.get(claim.uid)
        return [Task(What.LOOK, uid) for uid in node.claims.get(claim, ())] if node else []

    def needs(self, task: Task) -> bool:
        """Return whether a task is still necessary."""
        node = self._nodes.get(task.uid)
        if node is None:
            return False
        if task.what is What.ORPHAN:
            return node.is_orphaning
        if node.identity is None or node.is_waiting:
            return True
        return node.loose > 0 and not node.is_being_deleted

    def cycles(self, uid: str) -> frozenset[str]:
        """Return the owners that an object blocks and that block it through a chain of others.

        All of them, and the object, wait for their dependents, so none would ever be deleted.
        """
        node = self._nodes[uid]
        assert node.meta is not None
        held = {one.uid for one in node.meta.owner_references if one.block_owner_deletion and self._waits(one.uid)}
        held.discard(uid)
        return frozenset(held & self._below(node)) if held else frozenset()

    def _below(self, node: GraphNode) -> set[str]:
        """Return all nodes that wait and block `node`, directly or through others that wait."""
        found: set[str] = set()
        open_ = [node]
        while open_:
            for uid in (uid for group in open_.pop().claims.values() for uid, blocks in group.items() if blocks):
                if uid not in found and self._nodes[uid].is_waiting:
                    found.add(uid)
                    open_.append(self._nodes[uid])
        return found

    def _waits(self, uid: str) -> bool:
        owner = self._nodes.get(uid)
        return owner is not None and owner.is_waiting

    def _observed(self, identity: ObjectIdentity) -> GraphNode | None:
        node = self._nodes.get(identity.uid)
        return node if node is not None and node.identity == identity else None

    def _unobserve(self, node: GraphNode, identity: ObjectIdentity) -> Steps:
        yield from self._relink(node, identity, node.meta, None)
        with self._recounting(node):
            node.identity = node.meta = None
        if not node.claims:
            del self._nodes[node.uid]

    @contextmanager
    def _recounting(self, owner: GraphNode) -> Iterator[None]:
        """Count the loose claims of an owner's dependents again after the owner has changed."""
        before = [owner.is_solid(claim) for claim in owner.claims]
        yield
        for (claim, group), was_solid in zip(owner.claims.items(), before, strict=True):
            change = was_solid - owner.is_solid(claim)
            for uid in group if change else ():
                self._nodes[uid].loose += change

    def _relink(
        self, node: GraphNode, identity: ObjectIdentity, before: ObjectMeta | None, after: ObjectMeta | None
    ) -> Steps:
        old = yield from _linking(identity, before)
        new = yield from _linking(identity, after)
        for claim, blocks in old.items():
            if new.get(claim) != blocks:
                yield self._detach(node, claim)
        for claim, blocks in new.items():
            if old.get(claim) != blocks:
                yield self._attach(node, identity, claim, blocks)

    def _attach(
        self, node: GraphNode, identity: ObjectIdentity, claim: ObjectIdentity, blocks: bool
    ) -> Iterable[Instruction]:
        owner = self._nodes.get(claim.uid)
        if owner is None:
            owner = self._nodes[claim.uid] = GraphNode(claim.uid)
        is_news = owner.attach(claim, node.uid, blocks)
        node.loose += not owner.is_solid(claim)
        if owner.identity is None:
            return (Task(What.LOOK, owner.uid if is_news else node.uid),)
        if not owner.identity.agrees_with(claim):
            return _doubt_one(identity, owner.identity, claim)
        return (Task(What.LOOK, node.uid),) if owner.is_waiting else ()

    def _detach(self, node: GraphNode, claim: ObjectIdentity) -> Iterable[Instruction]:
        owner = self._nodes[claim.uid]
        node.loose -= not owner.is_solid(claim)
        is_free = owner.detach(claim, node.uid)
        if owner.identity is None and not owner.claims:
            del self._nodes[owner.uid]
        elif is_free and owner.is_waiting:
            return (Task(What.LOOK, owner.uid),)
        return ()

    def _doubt(self, owner: GraphNode) -> Steps:
        """Yield tasks for the dependents whose claim does not match the observed `owner`."""
        assert owner.identity is not None
        for claim, group in owner.claims.items():
            if not owner.identity.agrees_with(claim):
                for uid in group:
                    dependent = self._nodes[uid].identity
                    assert dependent is not None
                    yield _doubt_one(dependent, owner.identity, claim)


def _doubt_one(dependent: ObjectIdentity, owner: ObjectIdentity, claim: ObjectIdentity) -> Iterator[Instruction]:
    if owner.namespace and owner.namespace != claim.namespace:
        yield Misplaced(dependent, claim)
    yield Task(What.LOOK, dependent.uid)


def _linking(identity: ObjectIdentity, meta: ObjectMeta | None) -> Generator[Iterable[Instruction], None, Links]:
    """Return the claims of an object, without a claim on itself. There may be very many, so this runs in steps."""
    found: dict[ObjectIdentity, bool] = {}
    for number, reference in enumerate(meta.owner_references if meta is not None else ()):
        if number % _LINKED_AT_ONCE == _LINKED_AT_ONCE - 1:
            yield ()
        if reference.uid != identity.uid:
            claim = claim_of(identity, reference)
            found[claim] = found.get(claim, False) or reference.block_owner_deletion is True
    return found


def claim_of(dependent: ObjectIdentity, reference: OwnerReference) -> ObjectIdentity:
    """Return the owner that a reference means. Its API version does not matter, since all versions serve the
    same object.
    """
    group = reference.api_version.rpartition("/")[0]
    return ObjectIdentity(group, reference.kind, dependent.namespace, reference.name, reference.uid)


def is_orphaning(meta: ObjectMeta | None) -> bool:
    """Return whether an object is removed once its dependents do not refer to it any more."""
    return meta is not None and meta.deletion_timestamp is not None and ORPHAN in meta.finalizers


def is_waiting(meta: ObjectMeta | None) -> bool:
    """Return whether an object is removed once its blocking dependents are gone."""
    return (
        meta is not None
        and meta.deletion_timestamp is not None
        and FOREGROUND in meta.finalizers
        and ORPHAN not in meta.finalizers
    )
