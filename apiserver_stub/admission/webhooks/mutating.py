"""The plugin MutatingAdmissionWebhook: webhooks that change objects, one after the other."""

from collections.abc import Awaitable, Mapping
from typing import Any

import msgspec

from apiserver_stub.admission.chain import Attributes, Notes
from apiserver_stub.admission.matching import is_exempt, kind_of
from apiserver_stub.admission.review import converted
from apiserver_stub.admission.webhooks.calls import CallFailed, Calls, Question
from apiserver_stub.admission.webhooks.conditions import Conditions
from apiserver_stub.admission.webhooks.configurations import Webhook, WebhookIndex
from apiserver_stub.admission.webhooks.response import WebhookReview
from apiserver_stub.encode import json
from apiserver_stub.encode.json import check_depth, encode
from apiserver_stub.kinds.defaults.kinds import apply_defaults
from apiserver_stub.kinds.fit import fit_tree
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.go_decoding import unmarshal_problem
from apiserver_stub.kinds.values.trees import deep_copy
from apiserver_stub.patch import json_patch
from apiserver_stub.patch.managed_fields import accepted
from apiserver_stub.request.audit import note_latency
from apiserver_stub.webhooks.client import json_type
from controller_manager.common.api.errors import ApiError, internal_error
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import monotonic

NAME = "MutatingAdmissionWebhook"
_PREFIX = f"webhook.admission.{GROUP_DOMAIN}/"
_JSON_PATCH = "JSONPatch"
_NOT_SUPPORTED = "attempted to modify the object, which is not supported for this operation"
_SCHEME = "pkg/api/legacyscheme/scheme.go:30"
_NO_RECORD = (
    ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating "
    "admission controller; please fix your requests: "
)
_NO_OPERATION = "operation must be `Apply` or `Update`"


class _Rounds:
    """The state of a request between rounds: webhooks that allow reinvocation, those of them with later changes, and
    the object after the last webhook.
    """

    __slots__ = ("again", "asked", "output")

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.again: set[str] = set()
        self.output: Tree | None = None

    def changed(self) -> None:
        """Mark that the object has changed since the previous webhooks ran."""
        self.again |= self.asked
        self.asked.clear()


class MutatingWebhooks:
    """Shows objects to webhooks, and applies their patches."""

    def __init__(self, index: WebhookIndex, calls: Calls, conditions: Conditions) -> None:
        self._index = index
        self._calls = calls
        self._conditions = conditions

    def admit(self, attributes: Attributes) -> Awaitable[None] | None:
        """Call the mutating webhooks, if there are any. Raises `ApiError`."""
        return self._admit(attributes) if self._index and not is_exempt(attributes.kind) else None

    async def _admit(self, attributes: Attributes) -> None:
        reinvocation, began = attributes.reinvocation, monotonic()
        rounds: _Rounds = reinvocation.kept.setdefault(NAME, _Rounds())
        if reinvocation.again and rounds.output != attributes.object:
            rounds.changed()
        asked = False
        for number, (webhook, info) in enumerate(self._index.matching(attributes)):
            question = await Question.of(attributes, info)
            if not await self._conditions.match(webhook, question):
                continue
            if reinvocation.again and webhook.id not in rounds.again:
                continue
            asked = True
            if await self._ask(webhook, question, number):
                rounds.changed()
                reinvocation.ask()
            if webhook.reinvoked:
                rounds.asked.add(webhook.id)
        if asked:
            rounds.output = deep_copy(attributes.object)
            note_latency("mutating-webhook", monotonic() - began)

    async def _ask(self, webhook: Webhook, question: Question, number: int) -> bool:
        """Call the webhook with index `number` and apply its response; return whether the object changed."""
        attributes = question.attributes
        place = f"round_{int(attributes.reinvocation.again)}_index_{number}"

        def failed_open() -> bool:
            attributes.notes.annotate(f"failed-open.mutation.{_PREFIX}{place}", webhook.name)
            return False

        changed: bool | None = None
        try:
            changed = await self._calls.perform(
                webhook, attributes, self._change(webhook, question, place), failed_open
            )
            return changed
        finally:
            annotation = {"configuration": webhook.configuration, "webhook": webhook.name, "mutated": bool(changed)}
            attributes.notes.annotate(f"mutation.{_PREFIX}{place}", encode(annotation).decode())

    async def _change(self, webhook: Webhook, question: Question, place: str) -> bool:
        verdict = await self._calls.ask(webhook, question)
        operations = _operations(verdict)
        if not operations:
            return False
        if question.object is None:
            raise internal_error(f'admission webhook "{webhook.name}" {_NOT_SUPPORTED}')
        if verdict.patch_type != _JSON_PATCH:
            raise CallFailed(f'unsupported patch type "{verdict.patch_type}"', 400)
        attributes, info, before = question.attributes, question.info, question.object
        patched = _patched(before, info, attributes.subresource, operations)
        _annotate_patch(attributes.notes, f"patch.{_PREFIX}{place}", webhook, operations)
        changed = patched != before
        if changed:
            patched = await converted(patched, info, attributes.kind, attributes.subresource)
            tree, reinvocation = attributes.tree, attributes.reinvocation
            _keep_record(patched, tree, attributes.notes)
            if reinvocation.sent is None and attributes.operation == "update":
                reinvocation.sent = deep_copy(tree)
            tree.clear()
            tree.update(patched)
        return changed


def _operations(verdict: WebhookReview) -> list[Any]:
    """Return the operations of a JSON patch. Raises `CallFailed` if the patch is invalid."""
    if not verdict.patch:
        return []
    try:
        document = json.decode(verdict.patch)
    except ApiError as error:
        raise CallFailed(f"received undecodable patch in webhook response: {error.message}") from None
    if document is None:
        return []
    kind = "Patch"
    if isinstance(document, list):
        if all(isinstance(each, dict) for each in document):
            return document
        kind, document = "Operation", next(each for each in document if not isinstance(each, dict))
    found = "object" if isinstance(document, dict) else json_type(document)
    what = f"json: cannot unmarshal {found} into Go value of type jsonpatch.{kind}"
    raise CallFailed(f"received undecodable patch in webhook response: {what}")


def _patched(tree: Tree, info: ResourceInfo, subresource: str, operations: list[Any]) -> Tree:
    """Return the patched object, fitted to its schema and with its defaults. Raises `InternalError`."""
    try:
        found = json_patch.apply(deep_copy(tree), operations)
        check_depth(found)
    except json_patch.PatchError as error:
        raise internal_error(error.problem) from None
    except ApiError as error:
        raise internal_error(error.message) from None
    itself = kind_of(info, subresource) == kind_of(info, "")
    _keep_type(found, tree, custom=info.custom and itself)
    schema = info.schema if itself else info.subresources[subresource].schema
    problem = "" if info.custom and itself else unmarshal_problem(found, schema)
    report = fit_tree(found, schema)
    if report.wrong:
        raise internal_error(problem or "; ".join(report.wrong))
    found.setdefault("metadata", {})
    if itself:
        apply_defaults(found, info)
    return found


def _keep_type(patched: Tree, tree: Tree, *, custom: bool) -> None:
    """Restore a removed type of an object. Raises `InternalError` for another type; the kind of custom objects is
    validated later.
    """
    if custom:
        if not patched.get("kind"):
            raise internal_error(
                f"Object 'Kind' is missing in '{msgspec.json.encode(patched, order='sorted').decode()}'"
            )
        patched["apiVersion"] = tree["apiVersion"]
        return
    for name in ("apiVersion", "kind"):
        if not patched.get(name):
            patched[name] = tree[name]
    version, kind = patched["apiVersion"], patched["kind"]
    if version != tree["apiVersion"] or kind != tree["kind"]:
        raise internal_error(f'no kind "{kind}" is registered for version "{version}" in scheme "{_SCHEME}"')


def _keep_record(patched: Tree, tree: Tree, notes: Notes) -> None:
    """Restore the managed fields of an object if the patched ones are invalid."""
    metadata, record = patched["metadata"], (tree.get("metadata") or {}).get("managedFields")
    fields = metadata.get("managedFields")
    if fields is None or fields == record:
        return
    live = record or []
    if fields == [{}] or accepted(fields, live) is live:
        if record is None:
            del metadata["managedFields"]
        else:
            metadata["managedFields"] = record
        known = all(each.get("operation") in ("Apply", "Update") for each in fields)
        notes.warn(_NO_RECORD + ("there are entries that cannot be read" if known else _NO_OPERATION))


def _annotate_patch(notes: Notes, key: str, webhook: Webhook, operations: list[Any]) -> None:
    annotation: Mapping[str, Any] = {
        "configuration": webhook.configuration,
        "webhook": webhook.name,
        "patch": operations,
        "patchType": _JSON_PATCH,
    }
    notes.of_objects.setdefault(key, encode(annotation).decode())
