"""Marks unused auto-generated token secrets of service accounts as invalid, and deletes them later (KEP-2799)."""

import asyncio
import re
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import Any, ClassVar

import msgspec

from controller_manager.common.api.core import CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS, Pod, Secret, ServiceAccount
from controller_manager.common.api.errors import Conflict, NotFound
from controller_manager.common.api.platform import SYSTEM_NAMESPACE
from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.base.clock import utc_now
from controller_manager.framework import (
    Add,
    Context,
    ControllerSpec,
    Duration,
    Key,
    Mapped,
    Options,
    PolicyRule,
    flag,
    key_of,
    try_write,
)

from .shared.service_accounts import OF_TYPE, account_of, uid_of

LAST_USED, INVALID_SINCE = "kubernetes.io/legacy-token-last-used", "kubernetes.io/legacy-token-invalid-since"
TRACKING = Key(SYSTEM_NAMESPACE, "kube-apiserver-legacy-service-account-token-tracking")
EVERY = 24 * 3600.0
"""Seconds between two checks of all secrets."""

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_REFERENCES = frozenset({"secret", "secretRef", "secretKeyRef", "nodePublishSecretRef"})


class LegacyTokenCleanerOptions(Options):
    """Flags of the legacy token cleaner."""

    title: ClassVar[str] = "Legacy service account token cleaner"

    legacy_service_account_token_clean_up_period: Duration = flag(
        "8760h", "how long a token kept in a secret must be unused before it may be deleted", minimum=1
    )


# Observed, once a day: since when servers track usage; each token secret, its age and last use; its service account, if
# it refers to the secret, as for auto-generated tokens; the pods of its namespace.
# Decided:                                                  Done:
#   usage tracked for less than the period                  nothing
#   secret newer, used within the period, or invalid date   nothing
#   account missing or without reference; a pod refers      nothing
#     to the secret
# Account and pods are read from the server before any change, since a marked token is rejected.
#   not marked as invalid                                   set the label with the present date, unless it has changed
#   marked for longer than the period                       delete it, unless it has changed


class LegacyTokenCleaner:
    """Reconciles token secrets."""

    def __init__(self, context: Context, options: LegacyTokenCleanerOptions) -> None:
        self._client = context.client
        self._secrets = context.informers.get(SECRETS, fields=OF_TYPE)
        self._accounts = context.informers.get(SERVICE_ACCOUNTS)
        self._pods = context.informers.get(PODS)
        self._period = timedelta(seconds=options.legacy_service_account_token_clean_up_period)

    async def run(self, add: Add) -> None:
        """Enqueue all secrets once a day, if usage has been tracked for long enough."""
        while True:
            if await self._is_tracked():
                for secret in self._secrets.list():
                    add(key_of(secret), "a day has passed")
            await asyncio.sleep(EVERY)

    async def reconcile(self, key: Key) -> None:
        """Mark secret `key` as invalid, or delete it."""
        secret, first = self._secrets.get(key), self._first_day()
        if secret is None or not is_unused(secret, first):
            return
        meta = secret.metadata
        since = day_of((meta.labels or {}).get(INVALID_SINCE, ""))
        if since is not None and since >= first:
            return
        if not self._is_superfluous(secret) or not await self._is_confirmed(secret):
            return
        if since is None:
            labels = {INVALID_SINCE: utc_now().date().isoformat()}
            seen = {"uid": meta.uid, "resourceVersion": meta.resource_version, "labels": labels}
            await try_write(self._client.patch(SECRETS, key, {"metadata": seen}))
        else:
            try:
                await self._client.delete(SECRETS, key, resource_version=meta.resource_version)
            except (NotFound, Conflict):
                return  # it is gone, or was changed and will be looked at again

    async def _is_tracked(self) -> bool:
        """Return whether usage was tracked for the whole period."""
        try:
            tracking = await self._client.get(CONFIG_MAPS, TRACKING)
        except NotFound:
            return False
        since = day_of(tracking.data.get("since", ""))
        return since is not None and since < self._first_day()

    def _first_day(self) -> date:
        """Return the first day of the period that ends now."""
        try:
            return (utc_now() - self._period).date()
        except OverflowError:
            return date.min

    def _is_superfluous(self, secret: Secret) -> bool:
        """Return whether a secret was auto-generated for its account and no pod refers to it."""
        name = account_of(secret)
        account = self._accounts.get(name) if name is not None else None
        return is_of(secret, account) and not is_referred(secret, self._pods.list(secret.metadata.namespace))

    async def _is_confirmed(self, secret: Secret) -> bool:
        """Return whether the server confirms this."""
        name = account_of(secret)
        if name is None:
            return False
        accounts = await self._client.list(SERVICE_ACCOUNTS, name.namespace, fields=f"metadata.name={name.name}")
        pods = await self._client.list(PODS, name.namespace)
        return is_of(secret, next(iter(accounts.items), None)) and not is_referred(secret, pods.items)


def is_of(secret: Secret, account: ServiceAccount | None) -> bool:
    """Return whether the account of a secret refers to it, as for auto-generated secrets."""
    if account is None or uid_of(secret) not in ("", account.metadata.uid):
        return False
    return any(one.name == secret.metadata.name for one in account.secrets)


def is_referred(secret: Secret, pods: Iterable[Pod]) -> bool:
    """Return whether one of these pods refers to a secret."""
    return any(secret.metadata.name in secrets_of(pod) for pod in pods)


def is_unused(secret: Secret, first: date) -> bool:
    """Return whether a secret was created before the day `first` and has not been used since."""
    meta = secret.metadata
    made, used = meta.creation_timestamp, (meta.labels or {}).get(LAST_USED)
    if meta.deletion_timestamp or not made or parse_time(made).date() >= first:
        return False
    if used is None:
        return True
    day = day_of(used)
    return day is not None and day < first


def day_of(text: str) -> date | None:
    """Return a date such as `2026-01-31`, or None for other texts."""
    try:
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def secrets_of(pod: Pod) -> set[str]:
    """Return the names of all secrets that a pod spec refers to."""
    spec = msgspec.json.decode(pod.raw).get("spec") or {}
    pulled = [one.get("name") for one in spec.get("imagePullSecrets") or ()]
    return {name for name in (*pulled, *_referred(spec)) if isinstance(name, str)}


def _referred(tree: Any) -> Iterator[Any]:
    if isinstance(tree, list):
        for item in tree:
            yield from _referred(item)
    elif isinstance(tree, dict):
        for field, value in tree.items():
            if field == "secretName":
                yield value
            if field in _REFERENCES and isinstance(value, dict):
                yield value.get("name")
            yield from _referred(value)


SPECS = (
    ControllerSpec(
        name="legacy-serviceaccount-token-cleaner-controller",
        aliases=("legacy-service-account-token-cleaner",),
        service_account="legacy-service-account-token-cleaner",
        reconciler=LegacyTokenCleaner,
        options=LegacyTokenCleanerOptions,
        watches=(Mapped(SECRETS, fields=OF_TYPE), Mapped(SERVICE_ACCOUNTS), Mapped(PODS)),
        rbac=(
            PolicyRule(("",), ("secrets", "serviceaccounts", "pods"), ("list", "watch")),
            PolicyRule(("",), ("configmaps",), ("get",), (TRACKING.name,)),
            PolicyRule(("",), ("secrets",), ("delete", "patch")),
        ),
    ),
)
