"""What every change of an existing object goes through between the caller's edit and the commit; no I/O."""

from collections.abc import Callable
from functools import partial

from apiserver_stub.call import Call, Item, Reply, Tree
from apiserver_stub.kinds.defaults import apply_defaults
from apiserver_stub.kinds.validate import validate
from apiserver_stub.kinds.warnings import warnings_of
from apiserver_stub.verbs.charge import charge
from apiserver_stub.verbs.create import check_namespace
from apiserver_stub.verbs.incoming import Warnings
from apiserver_stub.verbs.modify import Fresh, Write, modify
from apiserver_stub.verbs.rows import mismatch, stale
from apiserver_stub.verbs.tools import Tools, about
from apiserver_stub.verbs.tracking import Sign, sign_change
from controller_manager.api.errors import Cause, invalid

# From the current state to the wanted one, fitted to its schema.
Edit = Callable[[Fresh], tuple[Tree, Warnings]]


async def revise(
    tools: Tools, call: Call, edit: Edit, shown: Callable[[bytes], bytes] | None = None, sign: Sign | None = None
) -> Reply:
    """Change the object of the call, and answer with it or with what `shown` makes of it.

    `sign` records who owns what in the changed object; without it the caller owns what the edit changed.
    """
    revision = Revision(tools, call, edit, sign or partial(sign_change, tools, call))
    outcome = await modify(tools, call, revision)
    if shown is None:
        return Reply(Item(outcome.data), 200, revision.warnings)
    return Reply(Item(shown(outcome.data)), 200, revision.warnings)


class Revision:
    """Decides for `modify`: edit, hold to what the caller presumed, default, admit, prepare, sign, validate, settle.

    The change that takes away the last hold of an object under deletion removes it.
    """

    def __init__(self, tools: Tools, call: Call, edit: Edit, sign: Sign) -> None:
        self._tools = tools
        self._call = call
        self._edit = edit
        self._sign = sign
        self.warnings: Warnings = ()

    async def __call__(self, fresh: Fresh) -> Write | None:
        """The state to write, or None when nothing changes."""
        call, tools = self._call, self._tools
        new, old = await fresh.run(partial(self._edited, fresh))
        request = about(call, "update", new, old)
        tools.admission.admit(request)
        if not await fresh.run(partial(self._completed, new, old)):
            return None
        await charge(tools, call, request)
        return Write(new, self._ends(new, old), partial(tools.admission.settle, request))

    def _edited(self, fresh: Fresh) -> tuple[Tree, Tree]:
        """The new state as admission sees it, and the old one."""
        old = fresh()
        new, self.warnings = self._edit(fresh)
        self._presume(new["metadata"], old["metadata"])
        check_namespace(self._call, new["metadata"])
        apply_defaults(new, self._call.kind)
        return new, old

    def _completed(self, new: Tree, old: Tree) -> bool:
        """Whether the new state is another one; then it keeps all rules."""
        call, kind = self._call, self._call.kind
        self._prepare(new, old)
        self._sign(new, old)
        if new == old:
            return False
        problems = validate(kind, new, old, call.part)
        if problems:
            raise invalid(kind.group, kind.kind, call.name, problems)
        self.warnings = (*self.warnings, *warnings_of(kind, new, old, call.part))
        return True

    def _presume(self, metadata: Tree, current: Tree) -> None:
        """Hold to the version and uid the caller names; afterwards the tree has those of the current state."""
        version = metadata.get("resourceVersion", "")
        if version in ("", "0"):
            self._check_unconditional()
        elif version != current["resourceVersion"]:
            raise stale(self._call)
        metadata["resourceVersion"] = current["resourceVersion"]
        uid: str = metadata.get("uid") or current["uid"]
        if uid != current["uid"]:
            raise mismatch(self._call, "UID", uid, current["uid"])
        metadata["uid"] = uid

    def _check_unconditional(self) -> None:
        kind = self._call.kind
        if not kind.strategy.unconditional_update:
            message = "Invalid value: must be specified for an update"
            cause = Cause(reason="FieldValueInvalid", message=message, field="metadata.resourceVersion")
            raise invalid(kind.group, kind.kind, self._call.name, [cause])

    def _prepare(self, new: Tree, old: Tree) -> None:
        strategy, part = self._call.kind.strategy, self._call.subresource
        if part is not None and strategy.serves(part.name):
            strategy.prepare_subresource(part.name, new, old)
        else:
            strategy.prepare_update(new, old)

    def _ends(self, new: Tree, old: Tree) -> bool:
        metadata = old["metadata"]
        if "deletionTimestamp" not in metadata or metadata.get("deletionGracePeriodSeconds"):
            return False
        return not self._call.kind.strategy.still_held(new)
