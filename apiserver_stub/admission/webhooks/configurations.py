"""The webhooks of MutatingWebhookConfigurations, or ValidatingWebhookConfigurations, as the watch cache has them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.admission.matching import MatchCriteria, Matcher, MatchIndex
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Change, CorruptRow, Row
from apiserver_stub.webhooks.client import WebhookConfig, WebhookError
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.tree import Tree

_GROUP = f"admissionregistration.{GROUP_DOMAIN}"
MUTATING = f"mutatingwebhookconfigurations.{_GROUP}"
VALIDATING = f"validatingwebhookconfigurations.{_GROUP}"
_KNOWN_VERSIONS = ("v1", "v1beta1")
_WITHOUT_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_TIMEOUT = 10  # seconds


@dataclass(frozen=True, slots=True, eq=False)
class Webhook:
    """A webhook of a configuration; `id` distinguishes webhooks of the same name.

    `review_version` is the version of AdmissionReview to send, empty if it accepts no known one. One that `ignores`
    failures admits requests when the call fails; `dry_run` means that it may be called for dry-run requests,
    `reinvoked` that it runs again after later changes of the object.
    """

    name: str
    configuration: str
    id: str
    place: WebhookConfig | WebhookError
    timeout: float
    review_version: str
    ignores: bool
    dry_run: bool
    reinvoked: bool
    conditions: tuple[str, ...]

    @classmethod
    def of(cls, configuration: str, id_: str, tree: Tree) -> "Webhook":
        """Return the webhook in an object of the API, which has its defaults."""
        versions = tree.get("admissionReviewVersions") or ()
        return cls(
            name=tree["name"],
            configuration=configuration,
            id=id_,
            place=_place(tree["clientConfig"]),
            timeout=tree.get("timeoutSeconds") or _TIMEOUT,
            review_version=next((version for version in versions if version in _KNOWN_VERSIONS), ""),
            ignores=tree.get("failurePolicy") == "Ignore",
            dry_run=tree.get("sideEffects") in _WITHOUT_SIDE_EFFECTS,
            reinvoked=tree.get("reinvocationPolicy") == "IfNeeded",
            conditions=tuple(each["expression"] for each in tree.get("matchConditions") or ()),
        )

    def config(self) -> WebhookConfig:
        """Return the place of the webhook. Raises `WebhookError`."""
        if isinstance(self.place, WebhookError):
            raise self.place
        return self.place


def _place(client_config: Tree) -> WebhookConfig | WebhookError:
    try:
        return WebhookConfig.of(client_config)
    except WebhookError as error:
        return error


_Entry = tuple[MatchCriteria, Webhook]


class WebhookIndex:
    """The webhooks of one kind of configurations, sorted by configuration name and in their order there. They are read
    on first use.
    """

    def __init__(self, store: WatchCache, matcher: Matcher, resource: str) -> None:
        self._store = store
        self._matcher = matcher
        self._resource = resource
        self._read: dict[str, tuple[Row, Sequence[_Entry]]] = {}
        self._index: MatchIndex[Webhook] = MatchIndex(matcher)
        self._is_current = False

    def follow(self) -> None:
        """Subscribe to changes."""
        self._is_current = False
        self._store.subscribe(self._on_changes)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        if not self._is_current:
            self._renew()
        return bool(self._index)

    def matching(self, attributes: Attributes) -> Iterator[tuple[Webhook, ResourceInfo]]:
        """Yield the webhooks that match a request, with the resource in the version of the rule, like
        `MatchIndex.matching`.
        """
        return self._index.matching(attributes) if self else iter(())

    def _on_changes(self, changes: Sequence[Change]) -> None:
        if self._is_current and any(change.row.resource == self._resource for change in changes):
            self._is_current = False

    def _renew(self) -> None:
        """Read changed configurations."""
        before, self._read = self._read, {}
        for row in self._store.snapshot(self._resource).items():
            if not isinstance(row, CorruptRow):
                known = before.get(row.key)
                self._read[row.key] = known if known is not None and known[0] is row else (row, _entries(row.data))
        entries = [entry for key in sorted(self._read) for entry in self._read[key][1]]
        self._index = MatchIndex(self._matcher, entries)
        self._is_current = True


def _entries(data: bytes) -> Sequence[_Entry]:
    """Return the webhooks of a configuration."""
    configuration: dict[str, Any] = orjson.loads(data)
    name = configuration["metadata"]["name"]
    found, known = [], dict[str, int]()
    for tree in configuration.get("webhooks") or ():
        number = known[tree["name"]] = known.get(tree["name"], -1) + 1
        webhook = Webhook.of(name, f"{name}/{tree['name']}/{number}", tree)
        found.append((MatchCriteria.of_webhook(tree), webhook))
    return found
