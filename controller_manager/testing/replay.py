"""Replays a recording in a test cluster: its objects change at the recorded times, so that controllers react."""

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
    """Return whether an object has no controller: a user or an external system created it."""
    return not any(owner.get("controller") for owner in row.tree["metadata"].get("ownerReferences") or ())


class Replay:
    """Writes the selected rows of a recording to a cluster, with their uids, at the recorded times.

    Existing objects of the cluster, such as its namespaces, are not changed, and owner references to the recorded ones
    are mapped to them. With `specs_only`, the cluster's controllers write statuses, and rows that change only the
    status are skipped; combined with `is_unowned`, the rows are what users did. Resources that the server does not
    serve are listed in `unserved`.
    """

    def __init__(
        self, cluster: Cluster, recording: Recording, *, select: Select = lambda _: True, specs_only: bool = False
    ) -> None:
        self._cluster = cluster
        self._recording = recording
        self._select = select
        self._specs_only = specs_only
        self._begun = False
        self._uids: dict[str, str] = {}  # uids of existing objects by the uids in the recording
        self._last: dict[tuple[str, str], Tree] = {}
        self.unserved: set[str] = set()

    async def begin(self) -> None:
        """Write the objects that existed at the start of the recording. Start managers afterwards.

        On a virtual loop, the wall clock is set to the start of the recording.
        """
        self._begun = True
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            loop.epoch = self._recording.began.timestamp() - loop.time()
        for row in self._recording.rows:
            if row.type == "LISTED" and self._select(row):
                await self._put(row)

    async def run(self, speed: float = 1.0) -> None:
        """Replay all changes, `speed` times as fast. Calls `begin` if it has not been called.

        Changes are at least a millisecond apart, so that controllers see each of them.
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
        """Return whether a row must be replayed; with `specs_only`, changes of the status alone are skipped."""
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
    """A write: the verb, the resource (such as `deployments.apps/status`), and the object.

    `about` is the key of the object, or for the creation of a controlled object, whose name may be random, its owner.
    """

    verb: str
    resource: str
    about: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The writes that the controllers of a dry run attempted, with their first times, and the recorded ones."""

    ours: Mapping[RecordedWrite, float]
    recorded: Mapping[RecordedWrite, float]

    @property
    def both(self) -> Collection[RecordedWrite]:
        """The writes that our controllers attempted and that were recorded."""
        return sorted(self.ours.keys() & self.recorded.keys())

    @property
    def ours_alone(self) -> Collection[RecordedWrite]:
        """The writes that our controllers attempted but that were not recorded."""
        return sorted(self.ours.keys() - self.recorded.keys())

    @property
    def recorded_alone(self) -> Collection[RecordedWrite]:
        """The recorded writes that our controllers did not attempt."""
        return sorted(self.recorded.keys() - self.ours.keys())


@dataclass(slots=True)
class DryRun:
    """Blocks the writes of a manager during a replay, and records them.

    Each write fails with a conflict, so that the controller retries with the next recorded state. Events and leases are
    not blocked.
    """

    replica: Replica
    _began: float = 0.0
    _ours: dict[RecordedWrite, float] = field(default_factory=dict)

    def begin(self) -> None:
        """Block writes from now on. Call it when the replay starts."""
        self._began = asyncio.get_running_loop().time()
        self.replica.network.intercept(self._refuse)

    def comparison(self, recording: Recording, resources: Collection[str]) -> Comparison:
        """Compare the attempted writes of some resources with the recorded ones."""
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
            return _refused(UnsupportedMediaType("a dry run reads JSON"))  # so the client sends JSON
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
    """Return the writes that caused a row."""
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
    """Return a description of the controlling owner of an object, or `own` without one."""
    for owner in tree.get("metadata", {}).get("ownerReferences") or ():
        if owner.get("controller"):
            key = f"{namespace}/{owner['name']}" if namespace else owner["name"]
            return f"an object of {owner['kind']} {key}"
    return own
