"""Publishes in every namespace the authorities that pods trust when they talk to the API server."""

import asyncio
from pathlib import Path

import msgspec

from controller_manager.api.core import CONFIG_MAPS, NAMESPACES, ConfigMap
from controller_manager.api.errors import AlreadyExists, ApiError, Conflict
from controller_manager.api.model import ObjectMeta
from controller_manager.api.platform import PLATFORM_DOMAIN
from controller_manager.base.clock import monotonic
from controller_manager.base.log import Logger
from controller_manager.base.metrics import Counters, Family, Histograms
from controller_manager.client import ConfigError
from controller_manager.controller import Add, Context, ControllerSpec, For, Key, Mapped, PolicyRule, key_of, try_write
from controller_manager.options import Options, flag

from ._namespaces import namespace_of, takes_content

NAME = "kube-root-ca.crt"
DATA = "ca.crt"
DESCRIPTION = f"{PLATFORM_DOMAIN}/description"
ABOUT = (
    "Certificates of the authorities by which pods can tell that they talk to the API server of this cluster at its "
    "addresses within the cluster, such as kubernetes.default.svc; they are good for nothing else."
)
# Seconds between two looks at the file.
LOOK_EVERY = 10.0
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


class RootCaPublisherOptions(Options):
    """Root CA certificate publisher controller"""

    root_ca_file: str = flag(
        "",
        "File (PEM) of the authorities that pods are told to trust, read again when it changes; by default they are "
        "those of the client configuration.",
        metavar="file",
    )


# Observed: the namespace, its config map of that name, the file of authorities.
# Decided:                                              Done:
#   the namespace is gone or being deleted              nothing
#   the config map says what it should, and has any     nothing
#     description
#   else                                                create or update; other annotations and labels stay
#   the file changed and holds certificates             every namespace is looked at
#   the file changed and is of no use                   nothing, but the log says so once


class RootCaPublisher:
    """Reconciles one namespace."""

    def __init__(self, context: Context, options: RootCaPublisherOptions) -> None:
        self._client = context.client
        self._namespaces = context.informers.get(NAMESPACES)
        self._published = context.informers.get(CONFIG_MAPS, fields=_OF_THAT_NAME)
        self._bundle = Bundle(options.root_ca_file, context.client.authorities, context.log)
        self._syncs = Counters(_SYNCS, context.runtime.registry)
        self._duration = Histograms(_DURATION, context.runtime.registry)

    async def run(self, add: Add) -> None:
        """Have every namespace looked at when the file changes."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if self._bundle.changed():
                for namespace in self._namespaces.list():
                    add(key_of(namespace), "the authorities changed")

    async def reconcile(self, key: Key) -> None:
        """Have the authorities published in namespace `key`."""
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
        wanted = desired(key.name, current, self._bundle.text)
        if wanted is None:
            return
        write = self._client.create if current is None else self._client.update
        try:
            await try_write(write(CONFIG_MAPS, wanted))
        except AlreadyExists as error:
            raise Conflict(str(error)) from None  # somebody was faster: it is looked at again


class Bundle:
    """The authorities: what is in the file, or the `default` if none is named. Raises ConfigError."""

    def __init__(self, file: str, default: bytes, log: Logger) -> None:
        self._file = file
        self._log = log
        self._problem = ""
        self.text = read_bundle(file) if file else default.decode("utf-8", "replace")

    def changed(self) -> bool:
        """Look at the file again; whether it holds other authorities than before. One of no use changes nothing."""
        if not self._file:
            return False
        try:
            text, problem = read_bundle(self._file), ""
        except ConfigError as error:
            text, problem = self.text, str(error)
        if problem and problem != self._problem:
            self._log.error("the authorities cannot be used; those before them stay published", problem=problem)
        changed, self.text, self._problem = text != self.text, text, problem
        return changed


def check(options: RootCaPublisherOptions) -> None:
    """Raise ConfigError unless the file holds certificates."""
    if options.root_ca_file:
        read_bundle(options.root_ca_file)


SPECS = (
    ControllerSpec(
        name="root-ca-certificate-publisher-controller",
        queue="root_ca_cert_publisher",
        aliases=("root-ca-cert-publisher",),
        service_account="root-ca-cert-publisher",
        reconciler=RootCaPublisher,
        options=RootCaPublisherOptions,
        check=check,
        watches=(For(NAMESPACES), Mapped(CONFIG_MAPS, namespace_of, fields=_OF_THAT_NAME)),
        rbac=(
            PolicyRule(groups=("",), resources=("namespaces", "configmaps"), verbs=("list", "watch")),
            PolicyRule(groups=("",), resources=("configmaps",), verbs=("create", "update")),
        ),
    ),
)


def desired(namespace: str, current: ConfigMap | None, authorities: str) -> ConfigMap | None:
    """The config map to write, or None when `current` is as it should be."""
    before = current or ConfigMap(metadata=ObjectMeta(namespace=namespace, name=NAME))
    annotations = dict(before.metadata.annotations or {})
    data = {DATA: authorities}
    if current is not None and current.data == data and annotations.get(DESCRIPTION):
        return None
    metadata = msgspec.structs.replace(before.metadata, annotations={**annotations, DESCRIPTION: ABOUT})
    return msgspec.structs.replace(before, metadata=metadata, data=data)


def read_bundle(file: str) -> str:
    """The content of the file that --root-ca-file names. Raises ConfigError unless it holds certificates."""
    from cryptography import x509  # not for --help, nor for whoever has no such file

    try:
        content = Path(file).read_bytes()
        x509.load_pem_x509_certificates(content)
        return content.decode()
    except OSError as error:
        raise ConfigError(f"--root-ca-file: {file} can't be read: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"--root-ca-file: {file} holds no certificates in PEM") from None
