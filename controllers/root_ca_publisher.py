"""Publishes the root CAs of the API server in a config map in every namespace."""

import msgspec

from controller_manager.common.api.core import CONFIG_MAPS, NAMESPACES, ConfigMap
from controller_manager.common.api.errors import AlreadyExists, ApiError, Conflict
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.base.clock import monotonic, sleep_for_housekeeping
from controller_manager.common.base.metrics import Counters, Family, Histograms
from controller_manager.framework import Add, Context, ControllerSpec, For, Key, Mapped, PolicyRule, key_of, try_write

from .shared.namespaces import namespace_of, takes_content
from .shared.service_accounts import CHECK_PERIOD, RootCAs, ServiceAccountOptions, read_root_cas

NAME = "kube-root-ca.crt"
DATA = "ca.crt"
DESCRIPTION = f"{PLATFORM_DOMAIN}/description"
ABOUT = (
    "Certificates of the authorities with which pods verify the API server of this cluster at its addresses within "
    "the cluster, such as kubernetes.default.svc. They are valid for nothing else."
)
_OF_THAT_NAME = f"metadata.name={NAME}"

_SYNCS = Family(
    "root_ca_cert_publisher_sync_total",
    "Namespaces looked at, by the HTTP status of the outcome.",
    "counter",
    ("code",),
)
_DURATION = Family(
    "root_ca_cert_publisher_sync_duration_seconds",
    "How long it took to look at a namespace, by the HTTP status of the outcome.",
    "histogram",
    ("code",),
    tuple(0.001 * 2**step for step in range(15)),
)


# Observed: the namespace, its config map of that name, the root CA file.
# Decided:                                              Done:
#   namespace gone or being deleted                     nothing
#   config map up to date, with any description         nothing
#   otherwise                                           create or update; keep other annotations and labels
#   the file has changed and is valid                   enqueue every namespace
#   the file has changed and is invalid                 log once


class RootCaPublisher:
    """Reconciles namespaces."""

    def __init__(self, context: Context, options: ServiceAccountOptions) -> None:
        self._client = context.client
        self._namespaces = context.informers.get(NAMESPACES)
        self._published = context.informers.get(CONFIG_MAPS, fields=_OF_THAT_NAME)
        self._authorities = RootCAs(options.root_ca_file, lambda: context.client.authorities, context.log)
        self._syncs = Counters(_SYNCS, context.runtime.registry)
        self._duration = Histograms(_DURATION, context.runtime.registry)

    async def run(self, add: Add) -> None:
        """Enqueue every namespace when the file changes."""
        while True:
            await sleep_for_housekeeping(CHECK_PERIOD)
            if self._authorities.changed():
                for namespace in self._namespaces.list():
                    add(key_of(namespace), "the authorities changed")

    async def reconcile(self, key: Key) -> None:
        """Publish the CAs in namespace `key`."""
        began, code = monotonic(), "500"
        try:
            await self._publish(key)
            code = "200"
        except ApiError as error:
            code = str(error.code)
            raise
        finally:
            self._syncs.add(code)
            self._duration.observe(monotonic() - began, code)

    async def _publish(self, key: Key) -> None:
        if not takes_content(self._namespaces.get(key)):
            return
        current = self._published.get(Key(key.name, NAME))
        wanted = desired(key.name, current, self._authorities.text)
        if wanted is None:
            return
        write = self._client.create if current is None else self._client.update
        try:
            await try_write(write(CONFIG_MAPS, wanted))
        except AlreadyExists as error:
            raise Conflict(str(error)) from None  # another client was faster: retry


def check(options: ServiceAccountOptions) -> None:
    """Raise ConfigError unless the file holds certificates."""
    if options.root_ca_file:
        read_root_cas(options.root_ca_file)


SPECS = (
    ControllerSpec(
        name="root-ca-certificate-publisher-controller",
        sharded_by=NAMESPACES,
        queue="root_ca_cert_publisher",
        aliases=("root-ca-cert-publisher",),
        service_account="root-ca-cert-publisher",
        reconciler=RootCaPublisher,
        options=ServiceAccountOptions,
        check=check,
        watches=(For(NAMESPACES), Mapped(CONFIG_MAPS, namespace_of, fields=_OF_THAT_NAME)),
        rbac=(
            PolicyRule(groups=("",), resources=("namespaces", "configmaps"), verbs=("list", "watch")),
            PolicyRule(groups=("",), resources=("configmaps",), verbs=("create", "update")),
        ),
    ),
)


def desired(namespace: str, current: ConfigMap | None, authorities: str) -> ConfigMap | None:
    """Return the config map to write, or None if `current` is up to date."""
    before = current or ConfigMap(metadata=ObjectMeta(namespace=namespace, name=NAME))
    annotations = dict(before.metadata.annotations or {})
    data = {DATA: authorities}
    if current is not None and current.data == data and annotations.get(DESCRIPTION):
        return None
    metadata = msgspec.structs.replace(before.metadata, annotations={**annotations, DESCRIPTION: ABOUT})
    return msgspec.structs.replace(before, metadata=metadata, data=data)
