"""Replaying a recording in a cluster of tests: its objects come and go at their times, for controllers to react to."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.request.request_info import RequestInfo, last_values
from apiserver_stub.storage.interface import Write, as_of
from controller_manager.common.api.errors import ApiError, Conflict, UnsupportedMediaType
from controller_manager.common.api.tree import Tree
from controller_manager.common.api.wire import Request, Response
from controller_manager.testing.cluster import Cluster
from controller_manager.testing.recording import RecordedObject, Recording
from controller_manager.testing.replica import Replica
from controller_manager.testing.virtual import VirtualLoop

_READS = frozenset({"GET", "HEAD"})
_APART = 0.001  # seconds
_NOT_COMPARED = frozenset({"events", "events.events.k8s.io", "leases.coordination.k8s.io"})

Select = Callable[[RecordedObject], bool]


def is_unowned(row: RecordedObject) -> bool:
    """Return whether no controller made an object: it came from a user, or from outside."""
    return not any(owner.get("controller") for owner in row.tree["metadata"].get("ownerReferences") or ())


class Replay:
    """Puts the rows of a recording that `select` chooses into a cluster, with the uids they had, at their times.

    Objects that the cluster has anyway, like its namespaces, stay as they are, and references to those of the recording
    lead to them. `specs_only` leaves statuses to the controllers of the cluster, and tells only what changed beside
    them: with `is_unowned` that is what users did. Kinds that the server does not serve are in `unserved`.
    """

    def __init__(
        self, cluster: Cluster, recording: Recording, *, select: Select = lambda _: True, specs_only: bool = False
    ) -> None:
        self._cluster = cluster
        self._recording = recording
        self._select = select
        self._specs_only = specs_only
        self._begun = False
        self._uids: dict[str, str] = {}  # of objects that the cluster had, by those of the recording
        self._last: dict[tuple[str, str], Tree] = {}
        self.unserved: set[str] = set()

    async def begin(self) -> None:
        """Put what there was when the recording began, so that managers started then find it whole. On a virtual loop
        the wall clock is set to the recording's.
        """
        self._begun = True
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            loop.epoch = self._recording.began.timestamp() - loop.time()
        for row in self._recording.rows:
            if row.type == "LISTED" and self._select(row):
                await self._put(row)

    async def run(self, speed: float = 1.0) -> None:
        """Replay everything, so many times as fast, after `begin` if that has not been called; changes are a
        millisecond apart at least, so that controllers see each.
        """
        if not self._begun:
            await self.begin()
        loop = asyncio.get_running_loop()
        began = loop.time()
        for row in self._recording.rows:
            if row.type != "LISTED" and self._select(row):
                await asyncio.sleep(max(began + row.seconds / speed - loop.time(), _APART))
                await self._put(row)

    async def _put(self, row: RecordedObject) -> None:
        info = self._cluster.api.kinds.find(row.resource.group, row.resource.version, row.resource.plural)
        if info is None:
            self.unserved.add(row.resource.name)
            return
        uid, key = row.tree["metadata"].get("uid", ""), row.key
        found = self._cluster.api.store.get(info.storage, key)
        present = msgspec.json.decode(found.data) if found is not None else None
        if present is not None and row.type in ("LISTED", "ADDED") and present["metadata"].get("uid") != uid:
            self._uids[uid] = present["metadata"].get("uid", "")
        if uid in self._uids or not self._is_news(row):
            return
        deleted = row.type == "DELETED"
        if deleted and found is None:
            return
        data = self._data(info, row.tree, present)
        await self._cluster.api.store.commit(
            Write(info.storage, key, found.revision if found is not None else 0, data, deleted)
        )

    def _is_news(self, row: RecordedObject) -> bool:
        """Return whether a row tells something that is to be told: with `specs_only`, not a status alone."""
        place = row.resource.name, row.key
        before, now = self._last.get(place), _without_status(row.tree)
        self._last[place] = now
        return not self._specs_only or row.type != "MODIFIED" or before != now

    def _data(self, info: ResourceInfo, tree: Tree, present: Tree | None) -> bytes:
        tree = {"apiVersion": info.api_version, "kind": info.kind, **tree}
        if self._specs_only:
            tree = {name: part for name, part in tree.items() if name != "status"}
            if present is not None and "status" in present:
                tree["status"] = present["status"]
        owners = tree["metadata"].get("ownerReferences")
        if owners and self._uids:
            mapped = [{**owner, "uid": self._uids.get(owner["uid"], owner["uid"])} for owner in owners]
            tree["metadata"] = {**tree["metadata"], "ownerReferences": mapped}
        if info.to_storage is not None:
            tree = info.to_storage(tree)
        return as_of(msgspec.json.encode(tree), "")


def _without_status(tree: Tree) -> Tree:
    metadata = {name: part for name, part in tree["metadata"].items() if name != "resourceVersion"}
    return {**{name: part for name, part in tree.items() if name != "status"}, "metadata": metadata}


@dataclass(frozen=True, slots=True, order=True)
class RecordedWrite:
    """A write in words: the verb, the resource (`deployments.apps/status`), and the object it is `about`; of one that a
    controller made, whose name may be drawn by chance, its owner.
    """

    verb: str
    resource: str
    about: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the controllers of a dry run would have written, by when they first wanted to, and what was recorded."""

    ours: Mapping[RecordedWrite, float]
    recorded: Mapping[RecordedWrite, float]

    @property
    def both(self) -> Collection[RecordedWrite]:
        """Return what ours would have done, and others did."""
        return sorted(self.ours.keys() & self.recorded.keys())

    @property
    def ours_alone(self) -> Collection[RecordedWrite]:
        """Return what ours would have done and nobody did."""
        return sorted(self.ours.keys() - self.recorded.keys())

    @property
    def recorded_alone(self) -> Collection[RecordedWrite]:
        """Return what others did and ours did not want to."""
        return sorted(self.recorded.keys() - self.ours.keys())


@dataclass(slots=True)
class DryRun:
    """Keeps a manager from writing while a recording is replayed, and notes what it wants to write.

    Each write is refused as a conflict, so that the controller looks again; the recording shows it what the others did
    instead. Events and leases are left alone.
    """

    replica: Replica
    _began: float = 0.0
    _ours: dict[RecordedWrite, float] = field(default_factory=dict)

    def begin(self) -> None:
        """Let nothing through from now on, when the replay begins too."""
        self._began = asyncio.get_running_loop().time()
        self.replica.network.intercept(self._refuse)

    def comparison(self, recording: Recording, resources: Collection[str]) -> Comparison:
        """Return how what was wanted compares with what was recorded of the writes of some resources."""
        recorded: dict[RecordedWrite, float] = {}
        last: dict[tuple[str, str], Tree] = {}
        for row in recording.rows:
            for action in _actions(row, last.get((row.resource.name, row.key))):
                recorded.setdefault(action, row.seconds)
            last[row.resource.name, row.key] = row.tree
        return Comparison(_of(self._ours, resources), _of(recorded, resources))

    def _refuse(self, request: Request) -> Response | None:
        if request.method in _READS:
            return None
        info = RequestInfo.of(request.method, request.path, last_values(request.query))
        resource = f"{info.resource}.{info.group}" if info.group else info.resource
        if resource in _NOT_COMPARED or not info.resource:
            return None
        below = f"/{info.subresource}" if info.subresource else ""
        verb = "update" if info.verb == "patch" else info.verb
        tree: Tree = {}
        if verb == "create" and "protobuf" in request.headers.get("content-type", ""):
            return _refused(UnsupportedMediaType("a dry run reads JSON"))  # in which it comes then
        if request.body and verb == "create":
            tree = msgspec.json.decode(request.body)
        name = info.name or tree.get("metadata", {}).get("name", "")
        own = f"{info.namespace}/{name}" if info.namespace else name
        action = RecordedWrite(verb, resource + below, _about(tree, own, info.namespace) if verb == "create" else own)
        self._ours.setdefault(action, asyncio.get_running_loop().time() - self._began)
        return _refused(Conflict("this is a dry run"))


def _refused(error: ApiError) -> Response:
    return Response(error.code, {"content-type": "application/json"}, error.status().encode())


def _of(actions: Mapping[RecordedWrite, float], resources: Collection[str]) -> Mapping[RecordedWrite, float]:
    return {action: at for action, at in actions.items() if action.resource.partition("/")[0] in resources}


def _actions(row: RecordedObject, before: Tree | None) -> list[RecordedWrite]:
    """Return the writes that a row shows."""
    name, key, tree = row.resource.name, row.key, row.tree
    if row.type == "LISTED":
        return []
    if row.type == "ADDED" or before is None:
        return [RecordedWrite("create", name, _about(tree, key, tree["metadata"].get("namespace", "")))]
    if row.type == "DELETED":
        return [] if before["metadata"].get("deletionTimestamp") else [RecordedWrite("delete", name, key)]
    if tree["metadata"].get("deletionTimestamp") and not before["metadata"].get("deletionTimestamp"):
        return [RecordedWrite("delete", name, key)]
    found = []
    if tree.get("status") != before.get("status"):
        found.append(RecordedWrite("update", f"{name}/status", key))
    if _without_status(tree) != _without_status(before):
        found.append(RecordedWrite("update", name, key))
    return found


def _about(tree: Tree, own: str, namespace: str) -> str:
    """Return the owner of an object that a controller made, or else the object."""
    for owner in tree.get("metadata", {}).get("ownerReferences") or ():
        if owner.get("controller"):
            key = f"{namespace}/{owner['name']}" if namespace else owner["name"]
            return f"an object of {owner['kind']} {key}"
    return own
