"""Configuration files of the server (`apiserver.config.k8s.io`, `audit.k8s.io`, …): strict decoding and reloading.

The code that uses a document validates its values.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from socket import gethostname
from typing import Any, TypeVar

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from controller_manager.common.api.errors import Cause
from controller_manager.common.api.model import Model
from controller_manager.common.base.clock import wall_seconds
from controller_manager.common.base.metric_rules import Stability
from controller_manager.common.base.metrics import Counters, Family, Gauges, Shown
from controller_manager.common.base.plain_yaml import NotPlain, read_yaml, without_nulls
from controller_manager.common.options.types import parse_duration

T = TypeVar("T")
_MOST_BYTES = 4 << 20
_SHOWN = 10  # errors in one message


class ConfigFileError(ValueError):
    """A file is unusable; the message contains the file, and field and error of each problem."""


class NotYetUsable(ConfigFileError):
    """A file is unusable now, but may become usable without a change."""


class Seconds(float):
    """A duration, written in a file as Go does (`5m0s`)."""


class ConfigModel(Model, forbid_unknown_fields=True):
    """A value in a file. Unknown fields are errors."""


class ConfigDocument(ConfigModel):
    """A whole document, identified by `apiVersion` and `kind`."""

    api_version: str
    kind: str


def read_config(path: Path, kind: str, types: Mapping[str, type[T]]) -> T:
    """Return the document in a file: of `kind`, as the type for its API version. Raises `ConfigFileError`."""
    return parse_config(read_bytes(path), path, kind, types)


def parse_config(data: bytes, path: Path, kind: str, types: Mapping[str, type[T]]) -> T:
    """Return the document in the bytes of a file, YAML or JSON; `null` means that a field is absent. Raises
    `ConfigFileError`.
    """
    tree = parse_tree(data, path)
    if not isinstance(tree, dict):
        raise ConfigFileError(f"{path} holds no {kind}")
    if tree.get("kind") != kind:
        raise ConfigFileError(f"{path}: kind: must be {kind}")
    version = tree.get("apiVersion")
    if not isinstance(version, str) or version not in types:
        raise ConfigFileError(f"{path}: apiVersion: must be one of {', '.join(types)}")
    return convert_tree(tree, types[version], str(path))


def parse_tree(data: bytes, path: Path, *, unique_keys: bool = True) -> Any:
    """Return the parsed YAML of a file without null values. Raises `ConfigFileError`."""
    if len(data) > _MOST_BYTES:
        raise ConfigFileError(f"{path} is larger than {_MOST_BYTES >> 20} MiB")
    try:
        return without_nulls(read_yaml(data, unique_keys=unique_keys))
    except NotPlain as error:
        raise ConfigFileError(f"{path} is not valid YAML: {error}") from None


def convert_tree(tree: Any, form: type[T], place: str, within: str = "") -> T:
    """Convert a tree to the type `form`. Errors name `place` and the field path, which starts with `within`. Raises
    `ConfigFileError`.
    """
    try:
        return msgspec.convert(tree, form, dec_hook=_converted)
    except msgspec.ValidationError as error:
        raise ConfigFileError(f"{place}: {_located(str(error), within)}") from None


def in_case(tree: Any, form: Any) -> Any:
    """Return a tree with field names spelled as in the type. Like Go, field names match in any case."""
    if not isinstance(tree, dict) or not (isinstance(form, type) and issubclass(form, msgspec.Struct)):
        return tree
    fields = {field.encode_name.lower(): field for field in msgspec.structs.fields(form)}
    found = {}
    for name, value in tree.items():
        field = fields.get(str(name).lower())
        found[field.encode_name if field else name] = in_case(value, field.type) if field else value
    return found


def refuse_causes(path: Path, causes: Sequence[Cause], within: str = "") -> None:
    """Raise `ConfigFileError` listing the validation errors of a document at the field `within` of a file; return if
    there are none.
    """
    if not causes:
        return
    messages = [f"{_joined(within, cause.field or '')}: {cause.message}" for cause in causes[:_SHOWN]]
    more = [f"and {len(causes) - _SHOWN} more"] if len(causes) > _SHOWN else []
    raise ConfigFileError(f"{path}: {'; '.join([*messages, *more])}")


def server_id_hash() -> str:
    """Return the server as metrics call it (`apiserver_id_hash`): a digest of the name of its machine."""
    return hashed(f"apiserver-{hashed(gethostname())}")


def hashed(text: str | bytes) -> str:
    """Return the digest of a text for metrics."""
    return f"sha256:{sha256(text.encode() if isinstance(text, str) else text).hexdigest()}"


class ReloadMetrics:
    """Metrics of the reloads of one configuration file: `kind` is authentication, authorization or encryption
    (KEP-3331, KEP-3221, KEP-3299).
    """

    def __init__(self, kind: str, registry: CollectorRegistry | None) -> None:
        name, what = f"apiserver_{kind}_config_controller", f"the {kind} configuration"
        labels = ("status", "apiserver_id_hash")
        stability: Stability = "ALPHA" if kind == "encryption" else "BETA"
        self._reloads = Counters(
            Family(f"{name}_automatic_reloads_total", f"Reloads of {what}.", "counter", labels, stability=stability),
            registry,
        )
        self._times = Gauges(
            Family(
                f"{name}_automatic_reload_last_timestamp_seconds",
                f"When a reload of {what} last succeeded or failed (seconds since the epoch).",
                "gauge",
                labels,
                stability=stability,
            ),
            registry,
        )
        self._info = LastConfigInfo(
            Family(f"{name}_last_config_info", f"The digest of {what} in use.", "gauge", ("apiserver_id_hash", "hash")),
            registry,
        )
        self._server = server_id_hash()

    def in_use(self, data: bytes) -> None:
        """These bytes are in use now."""
        self._info.show(self._server, hashed(data))

    def succeeded(self, data: bytes) -> None:
        """They are, since the file changed."""
        self._note("success")
        self.in_use(data)

    def failed(self) -> None:
        """Count a change of the file that is unusable."""
        self._note("failure")

    def _note(self, status: str) -> None:
        self._reloads.add(status, self._server)
        self._times.set(wall_seconds(), status, self._server)


class LastConfigInfo(Collector):
    """A metric with one series whose labels describe the configuration in use."""

    def __init__(self, family: Family, registry: CollectorRegistry | None) -> None:
        self._family = family
        self._labels: tuple[str, ...] | None = None
        if registry is not None:
            registry.register(self)

    def show(self, *labels: str) -> None:
        """This holds from now on."""
        self._labels = labels

    def describe(self) -> Iterable[Metric]:
        """Return the family without its series."""
        return (Shown(self._family),)

    def collect(self) -> Iterable[Metric]:
        """Called by the registry."""
        return (Shown(self._family, [] if self._labels is None else [(self._labels, 1.0)]),)


class FileWatcher:
    """Passes each changed content of a file to `apply`. Read errors are passed to `failed`, once per reason."""

    def __init__(
        self,
        path: Path,
        seen: bytes,
        apply: Callable[[bytes], Awaitable[None]],
        failed: Callable[[ConfigFileError], None],
        interval: float = 1.0,
    ) -> None:
        self._path = path
        self._seen = seen
        self._problem = ""
        self._apply = apply
        self._failed = failed
        self._interval = interval

    async def run(self) -> None:
        """Check the file every `interval` seconds until canceled. `apply` raises `ConfigFileError` for unusable
        content, and `NotYetUsable` to be called again.
        """
        while True:
            await asyncio.sleep(self._interval)
            await self.look()

    async def look(self) -> None:
        """Look once."""
        try:
            data = read_bytes(self._path)
        except ConfigFileError as error:
            if self._problem != str(error):
                self._problem = str(error)
                self._failed(error)
            return
        self._problem = ""
        if data == self._seen:
            return
        before, self._seen = self._seen, data
        try:
            await self._apply(data)
        except ConfigFileError as error:
            if isinstance(error, NotYetUsable):
                self._seen = before
            self._failed(error)


def _converted(wanted: type, value: Any) -> Any:
    if wanted is not Seconds:
        raise NotImplementedError
    if not isinstance(value, str):
        raise ValueError("a duration is a text like 5m0s")
    return Seconds(parse_duration(value))


def _located(message: str, within: str) -> str:
    """Split a msgspec error (`… - at `$.jwt[0].issuer``) and return it as `field: problem`."""
    problem, _, path = message.partition(" - at `$")
    field = _joined(within, path.rstrip("`").removeprefix("."))
    return f"{field}: {problem}" if field else problem


def _joined(within: str, field: str) -> str:
    return f"{within}.{field}" if within and field else within or field


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file. Raises `ConfigFileError`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigFileError(f"{path} can't be read: {error.strerror}") from None
