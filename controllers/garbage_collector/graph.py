"""The graph of who owns whom, as far as the watches tell; pure: changes go in, and instructions come out.

The nodes are the objects that were observed, and beside these every owner that one of them names and nobody has
observed: a virtual node. The graph is the same whatever the order of the changes that led to it.

A dependent claims who its owner is: by group, kind, name and uid, in its own namespace. An observed owner may disagree
with a claim (another kind or name, or another namespace); such a reference is not believed but looked up by what it
claims, so that nobody is deleted, or kept, for an owner he only pretends to have.
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
    """An object, or what a reference says of one; in a claim the namespace is that of the dependent."""

    group: str
    kind: str
    namespace: str
    name: str
    uid: str

    def agrees_with(self, claim: "ObjectIdentity") -> bool:
        """Return whether a claim means this very object; one without a namespace may be owned from everywhere."""
        return claim == self or (not self.namespace and claim._replace(namespace="") == self)


class Absent:
    """Owners known not to be there, the latest so many: a uid is never given again, so they will not come back."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[ObjectIdentity, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, owner: ObjectIdentity) -> None:
        """Remember one; without a namespace if its kind has none."""
        self._kept[owner] = None
        self._kept.move_to_end(owner)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def has(self, claim: ObjectIdentity) -> bool:
        """Return whether what a claim says is known not to be there."""
        for owner in (claim, claim._replace(namespace="")):
            if owner in self._kept:
                self._kept.move_to_end(owner)
                return True
        return False


FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class What(StrEnum):
    """An action on an object."""

    LOOK = "look at"
    """Find out whether it may stay; if it waits for its dependents, whether it still has to."""
    ORPHAN = "orphan the dependents of"


class Task(NamedTuple):
    """Something to be done about the object with that uid."""

    what: What
    uid: str

    def __str__(self) -> str:
        return f"{self.what} {self.uid}"


class Misplaced(NamedTuple):
    """An object that names an owner in a namespace where that cannot be; people are told."""

    dependent: ObjectIdentity
    owner: ObjectIdentity


Instruction = Task | Misplaced
Steps = Iterator[Iterable[Instruction]]
"""A change of the graph, done in steps that each take less than a millisecond; each yields what follows from it."""
# The claims of an object, and whether it holds up the deletion of the owner meant.
Links = Mapping[ObjectIdentity, bool]


class GraphNode:
    """An object; virtual while `identity` and `meta` are None."""

    __slots__ = ("_claims", "absent", "blocking", "identity", "loose", "meta", "uid")

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.identity: ObjectIdentity | None = None
        self.meta: ObjectMeta | None = None
        # How many claims hold up its deletion.
        self.blocking = 0
        # How many of its own claims mean an owner that is not there, is another one, or waits for its dependents.
        self.loose = 0
        # Claims of its dependents that are known to mean nothing that exists.
        self.absent: set[ObjectIdentity] | None = None
        # By what they claim, the uids of its dependents, and whether they hold up its deletion; made when needed.
        self._claims: dict[ObjectIdentity, dict[str, bool]] | None = None

    @property
    def is_being_deleted(self) -> bool:
        """Return whether its deletion has begun."""
        return self.meta is not None and self.meta.deletion_timestamp is not None

    @property
    def is_orphaning(self) -> bool:
        """Return whether it goes once its dependents are rid of it."""
        return is_orphaning(self.meta)

    @property
    def is_waiting(self) -> bool:
        """Return whether it goes once the dependents that hold it up are gone."""
        return is_waiting(self.meta)

    @property
    def claims(self) -> Mapping[ObjectIdentity, Mapping[str, bool]]:
        """Its dependents by what they claim it is: their uids, and whether they hold up its deletion."""
        return self._claims or {}

    def dependents(self) -> Iterator[str]:
        """The uids of all dependents."""
        for group in self.claims.values():
            yield from group

    def is_solid(self, claim: ObjectIdentity) -> bool:
        """Return whether it is what a claim says, and stays whatever becomes of its dependents."""
        return self.identity is not None and self.identity.agrees_with(claim) and not self.is_waiting

    def attach(self, claim: ObjectIdentity, uid: str, blocks: bool) -> bool:
        """Take in a dependent; whether it is the first that makes this claim."""
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
        """Let go of a dependent; whether that was the last one that held up its deletion."""
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
    """Every object watched, under its uid, and every owner named.

    A change is an iterator: it is made as its steps are taken, and must be completed before the next one begins.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, GraphNode] = {}
        self._absent = Absent(MOST_ABSENT)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[GraphNode]:
        return iter(self._nodes.values())

    def get(self, uid: str) -> GraphNode | None:
        """The node of that uid."""
        return self._nodes.get(uid)

    def observe(self, identity: ObjectIdentity, meta: ObjectMeta) -> Steps:
        """An object is there, and looks like this now."""
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
        """An object was deleted."""
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
        """An object is out of sight; whether it is still there is not known."""
        node = self._observed(identity)
        if node is None:
            return
        yield from self._unobserve(node, identity)
        if node.claims:
            yield (Task(What.LOOK, node.uid),)

    def note_absent(self, owner: ObjectIdentity) -> None:
        """Remember that an owner is not there: as long as somebody names it, and for some time."""
        self._absent.add(owner)
        node = self._nodes.get(owner.uid)
        if node is not None and node.claims:
            node.absent = node.absent or set()
            node.absent.add(owner)

    def is_absent(self, claim: ObjectIdentity) -> bool:
        """Return whether the owner that a claim means is known not to be there."""
        node = self._nodes.get(claim.uid)
        known = node.absent if node is not None else None
        if known and (claim in known or claim._replace(namespace="") in known):
            return True
        return self._absent.has(claim)

    def claimants(self, claim: ObjectIdentity) -> list[Instruction]:
        """Have those looked at that make a claim: it turned out that there is no such owner."""
        node = self._nodes.get(claim.uid)
        return [Task(What.LOOK, uid) for uid in node.claims.get(claim, ())] if node else []

    def needs(self, task: Task) -> bool:
        """Return whether there still is a reason for a task."""
        node = self._nodes.get(task.uid)
        if node is None:
            return False
        if task.what is What.ORPHAN:
            return node.is_orphaning
        if node.identity is None or node.is_waiting:
            return True
        return node.loose > 0 and not node.is_being_deleted

    def cycles(self, uid: str) -> frozenset[str]:
        """The owners that an object holds up and that, at the end of a chain of such, hold it up: none would ever go.

        All of them wait for their dependents, and so does the object.
        """
        node = self._nodes[uid]
        assert node.meta is not None
        held = {one.uid for one in node.meta.owner_references if one.block_owner_deletion and self._waits(one.uid)}
        held.discard(uid)
        return frozenset(held & self._below(node)) if held else frozenset()

    def _below(self, node: GraphNode) -> set[str]:
        """All that hold up `node` and wait themselves, directly or through others that do."""
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
        """Count the loose claims of the dependents of an owner again, after a change of what it is."""
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
        """Have those looked at that claim `owner`, which is observed now, to be something else."""
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
    """Return the claims of an object, but for one that it owns itself; in steps, as there may be very many."""
    found: dict[ObjectIdentity, bool] = {}
    for number, reference in enumerate(meta.owner_references if meta is not None else ()):
        if number % _LINKED_AT_ONCE == _LINKED_AT_ONCE - 1:
            yield ()
        if reference.uid != identity.uid:
            claim = claim_of(identity, reference)
            found[claim] = found.get(claim, False) or reference.block_owner_deletion is True
    return found


def claim_of(dependent: ObjectIdentity, reference: OwnerReference) -> ObjectIdentity:
    """Return which owner a reference means; the version does not matter, since every version shows the same object."""
    group = reference.api_version.rpartition("/")[0]
    return ObjectIdentity(group, reference.kind, dependent.namespace, reference.name, reference.uid)


def is_orphaning(meta: ObjectMeta | None) -> bool:
    """Return whether an object goes once its dependents are rid of it."""
    return meta is not None and meta.deletion_timestamp is not None and ORPHAN in meta.finalizers


def is_waiting(meta: ObjectMeta | None) -> bool:
    """Return whether an object goes once the dependents that hold it up are gone."""
    return (
        meta is not None
        and meta.deletion_timestamp is not None
        and FOREGROUND in meta.finalizers
        and ORPHAN not in meta.finalizers
    )
