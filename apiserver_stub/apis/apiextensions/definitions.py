"""The controller of CustomResourceDefinitions: it serves their resources, writes their status, and deletes their
objects before a definition is removed.

It follows the watch cache, so that all servers of one storage serve the same. All of them write the same status; a
server that is late finds it written.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter

import msgspec

from apiserver_stub.apis.apiextensions.cleanup import (
    PATIENCE,
    delete_objects,
    is_ending,
    refused,
    storage_of,
    verdict,
    with_verdict,
)
from apiserver_stub.apis.apiextensions.status import Names, decide_status
from apiserver_stub.common.offload import is_large
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.strategies.definitions import (
    ESTABLISHED,
    NAMES_ACCEPTED,
    TERMINATING,
    DefinitionCondition,
    is_true,
)
from apiserver_stub.verbs import RequestScope
from apiserver_stub.verbs.update import amend
from apiserver_stub.watch_cache.row import Change, CorruptRow
from controller_manager.common.api.errors import NotFound, TooManyRequests
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.fair_loop import give_way
from controller_manager.common.base.log import Logger
from controller_manager.common.base.tasks import Tasks, contain, keep_running

GROUP = f"apiextensions.{GROUP_DOMAIN}"
KIND = GROUP, "v1", "customresourcedefinitions"
DEFINITIONS = f"customresourcedefinitions.{GROUP}"
# Returns the resources of a definition with accepted names, one for each version.
ResourcesOf = Callable[[Tree], tuple[ResourceInfo, ...]]


_PAUSE = 0.5  # seconds after which no other server creates objects of a terminating definition


class _Known(msgspec.Struct, frozen=True):
    """A definition as this server serves it: its group, its accepted names, whether all names are accepted, and its
    resources with the digest of everything they depend on.
    """

    group: str
    names: Names
    has_all_names: bool
    digest: bytes = b""
    resources: tuple[ResourceInfo, ...] = ()


class DefinitionController:
    """Serves definitions after `read`. While `run` is active, writes their status and finishes their deletion."""

    def __init__(self, scope: RequestScope, resources_of: ResourcesOf, log: Logger) -> None:
        self._scope = scope
        self._resources_of = resources_of
        self._log = log
        self._built_in: dict[str, Names] = {}  # by group
        self._known: dict[str, _Known] = {}
        self._changed: dict[str, None] = {}  # definitions with unprocessed changes
        self._unsettled: dict[str, None] = {}  # definitions whose status may need an update
        self._cleaned: set[str] = set()  # definitions whose objects are being deleted
        self._gone: dict[str, asyncio.Event] = {}  # by storage: set when an object is deleted
        self._wake = asyncio.Event()
        self._serving = asyncio.Lock()

    async def read(self) -> None:
        """Serve the existing definitions and follow changes."""
        for group, infos in groupby(self._scope.kinds.all(), key=attrgetter("group")):
            self._built_in[group] = Names.of(infos)
        self._changed.update((row.key, None) for row in self._scope.store.snapshot(DEFINITIONS).items())
        self._scope.store.subscribe(self._note_changes)
        await self.serve_changed()

    async def run(self) -> None:
        """Keep the status of all definitions up to date and clean up deleted ones, until cancelled."""
        await keep_running(self._settle_all, self._log, name="definitions")

    async def _settle_all(self) -> None:
        self._unsettled.update(dict.fromkeys(self._known))
        self._cleaned.clear()
        async with Tasks() as tasks:
            while True:
                await self.serve_changed()
                name = next(iter(self._unsettled), None)
                if name is None:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                del self._unsettled[name]
                await give_way()  # each step decodes the whole definition
                definition = self._definition(name)
                if definition is None:
                    continue
                if not is_ending(definition):
                    await self._settle(name, definition)
                elif name not in self._cleaned:
                    self._cleaned.add(name)
                    what = f"cleanup of {name}"
                    tasks.start(keep_running(partial(self._clean, name), self._log, name=what), name=what)

    def _note_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == DEFINITIONS:
                self._changed[change.row.key] = None
                self._wake.set()
            elif change.deleted and change.row.resource in self._gone:
                self._gone[change.row.resource].set()

    def _definition(self, name: str) -> Tree | None:
        row = self._scope.store.get(DEFINITIONS, name)
        if row is None or isinstance(row, CorruptRow):
            return None
        found: Tree = msgspec.json.decode(row.data)
        return found

    @property
    def is_up_to_date(self) -> bool:
        """Return whether all changes of definitions are served."""
        return not self._changed

    async def serve_changed(self) -> None:
        """Serve all changed definitions, one at a time."""
        async with self._serving:
            while self._changed:
                name = next(iter(self._changed))
                del self._changed[name]
                try:
                    await contain(partial(self._serve, name), self._log, name=f"serving {name}")
                except asyncio.CancelledError:
                    self._changed[name] = None  # for the next caller
                    raise

    async def _serve(self, name: str) -> None:
        """Serve the current resources of a definition and remove its old ones."""
        before, definition = self._known.get(name), self._definition(name)
        after = await self._know(definition, before) if definition is not None else None
        if after is not None:
            self._known[name] = after
            self._unsettled[name] = None
        else:
            self._known.pop(name, None)
        if before is not None and (after is None or before.names != after.names):
            self._unsettle_others(before.group)
        self._register(before.resources if before else (), after.resources if after else ())

    async def _know(self, definition: Tree, before: _Known | None) -> _Known:
        """Return the state of a definition. Its resources are reused if nothing they depend on has changed."""
        group, names = definition["spec"]["group"], Names.accepted(definition)
        has_all_names = is_true(definition, NAMES_ACCEPTED)
        if not is_true(definition, ESTABLISHED):
            return _Known(group, names, has_all_names)
        ends = is_true(definition, TERMINATING)
        of = definition["metadata"]["uid"], definition["spec"], definition["status"]["acceptedNames"]
        data = msgspec.json.encode(of)
        digest = blake2b(data, digest_size=16).digest()
        if before is not None and before.digest == digest:
            resources = before.resources
        elif is_large(data):
            resources = await self._make_apart(definition)
        else:
            resources = self._resources_of(definition)
        if any(info.terminating != ends for info in resources):
            resources = tuple(replace(info, terminating=ends) for info in resources)
        return _Known(group, names, has_all_names, digest, resources)

    async def _make_apart(self, definition: Tree) -> tuple[ResourceInfo, ...]:
        """Return the resources of a large definition; they are built in the offload thread."""
        while True:
            try:
                return await self._scope.offload.run(partial(self._measured, definition))
            except TooManyRequests:
                await asyncio.sleep(_PAUSE)

    def _measured(self, definition: Tree) -> tuple[ResourceInfo, ...]:
        resources = self._resources_of(definition)
        for info in resources:
            info.is_costly(b"{}")  # reads the whole schema the first time
        return resources

    def _unsettle_others(self, group: str) -> None:
        """Check the definitions of a group again that wait for a name."""
        for name, known in self._known.items():
            if known.group == group and not known.has_all_names:
                self._unsettled[name] = None

    def _register(self, before: Iterable[ResourceInfo], after: Iterable[ResourceInfo]) -> None:
        kinds, ours = self._scope.kinds, frozenset(before)
        kept = {(info.version, info.plural) for info in after}
        for info in ours:
            if (info.version, info.plural) not in kept and kinds.serves(info):
                kinds.remove(info)
        for info in after:
            found = kinds.find(info.group, info.version, info.plural)
            if found is None or found in ours:  # a built-in kind is kept
                kinds.add(info)

    async def _settle(self, name: str, definition: Tree) -> None:
        """Write the status of a definition if it has changed."""
        group = definition["spec"]["group"]
        taken = self._built_in.get(group, Names())
        for other, known in self._known.items():
            if other != name and known.group == group:
                taken |= known.names
        if decide_status(definition, taken) != definition.get("status"):
            await self._amend(name, lambda tree: {**tree, "status": decide_status(tree, taken)})

    async def _clean(self, name: str) -> None:
        """Delete the objects of a definition, then its finalizer. Return when it is gone or only other finalizers hold
        it.
        """
        while (definition := self._definition(name)) is not None and is_ending(definition):
            storage = storage_of(definition)
            gone = self._gone[storage] = asyncio.Event()
            try:
                terminating = await self._delete_objects(name, definition)
                await self._amend(name, with_verdict(terminating))
                if terminating["status"] == "True":
                    await self._wait_until_empty(storage, gone)
            finally:
                del self._gone[storage]
        self._cleaned.discard(name)

    async def _delete_objects(self, name: str, definition: Tree) -> DefinitionCondition:
        """Delete the objects that can be deleted; return the condition. Raises the first error."""
        overlaps = definition["spec"]["names"]["plural"] in self._built_in_of(definition).resources
        terminating = verdict(self._scope.store, definition, overlaps=overlaps)
        if not is_true(definition, ESTABLISHED) or overlaps:
            return terminating
        await asyncio.sleep(_PAUSE)
        terminating = verdict(self._scope.store, definition, overlaps=overlaps)
        if terminating["status"] == "False":
            return terminating
        await self._amend(name, with_verdict(terminating))
        refusals = await delete_objects(self._scope, definition)
        if refusals:
            await self._amend(name, with_verdict(refused(refusals)))
            raise refusals[0]
        return verdict(self._scope.store, definition, overlaps=overlaps)

    def _built_in_of(self, definition: Tree) -> Names:
        return self._built_in.get(definition["spec"]["group"], Names())

    async def _wait_until_empty(self, storage: str, gone: asyncio.Event) -> None:
        """Wait until all objects are gone, or until the condition must report that some remain."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while self._scope.store.count(storage):
                    gone.clear()
                    await gone.wait()

    async def _amend(self, name: str, change: Callable[[Tree], Tree]) -> None:
        with suppress(NotFound):
            await amend(self._scope, KIND, "", name, change)
