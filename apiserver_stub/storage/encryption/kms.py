"""The provider of KMS v2 (KEP-3299): data keys are derived from a seed that a KMS plugin encrypts.

Each object is encrypted by AES-GCM with its own key, which HKDF (RFC 5869) derives from the seed and 32 random bytes
stored in front of the object. The encrypted seed is stored with each object and decrypted once. The seed is replaced
when the plugin reports another key, and must not be used for writes more than 3 minutes after the plugin was last
healthy. Objects stay readable while their seed is cached.
"""

import asyncio
from collections.abc import Mapping
from functools import partial

from msgspec import Struct
from prometheus_client import CollectorRegistry

from apiserver_stub.common.config_file import hashed
from apiserver_stub.storage.encryption.config import KMS
from apiserver_stub.storage.encryption.transformers import AESGCM, Decrypted, KeyNeeded, TransformError
from controller_manager.common.api.errors import RequestEntityTooLarge
from controller_manager.common.api.protobuf.reader import FieldBudget, MessageReaders
from controller_manager.common.api.protobuf.services import service
from controller_manager.common.api.protobuf.wire import MessageWriters
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import monotonic, wall_seconds
from controller_manager.common.base.log import Logger
from controller_manager.common.base.metrics import Counters, Family, Gauges, Histograms
from controller_manager.common.base.random import random_source
from controller_manager.common.transport.grpc import GrpcChannel, GrpcError

_WELL, _ILL = 60.0, 10.0  # seconds until the next status call of a healthy and of an unhealthy plugin
_USABLE = 180.0  # seconds a seed may be used after the last healthy status
_SEED = _INFO = _KEY = 32  # bytes
_MOST_SEEDS = 1000
_LONGEST_KEY_ID = _LONGEST_SOURCE = 1024
_LARGEST_ANNOTATIONS = 32 * 1024
_VERSIONS = ("v2", "v2beta1")
_DATA_KEY, _SEED_KEY = 0, 1  # types of the encrypted source
_OBJECT = "v2.EncryptedObject"
_MESSAGES: Mapping[str, Mapping[str, list[str]]] = {
    _OBJECT: {
        "1": ["data", "raw", "pointer"],
        "2": ["key_id", "string", "pointer"],
        "3": ["source", "raw", "pointer"],
        "4": ["annotations", "raw", "map"],
        "5": ["type", "int", "pointer"],
    }
}
_WRITE = MessageWriters(_MESSAGES)[_OBJECT].message
_READER = MessageReaders(_MESSAGES)[_OBJECT]
_PREFIX = "apiserver_envelope_encryption_"
_LATENCY = Family(
    f"{_PREFIX}kms_operations_latency_seconds",
    "Seconds that calls of the KMS plugin took, by status code.",
    "histogram",
    ("provider_name", "method_name", "grpc_status_code"),
    tuple(0.0001 * 2**power for power in range(20)),
)
_KEY_IDS = Family(
    f"{_PREFIX}key_id_hash_total",
    "Number of uses of each key of a KMS plugin.",
    "counter",
    ("transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"),
)
_STATUS_AT = Family(
    f"{_PREFIX}key_id_hash_status_last_timestamp_seconds",
    "Time at which a KMS plugin last reported a key, in seconds since the epoch.",
    "gauge",
    ("provider_name", "key_id_hash", "apiserver_id_hash"),
)
_INVALID_IDS = Family(
    f"{_PREFIX}invalid_key_id_from_status_total",
    "Number of invalid key IDs reported by a KMS plugin.",
    "counter",
    ("provider_name", "error"),
)
_SOURCES = Family(
    f"{_PREFIX}dek_source_cache_size",
    "Number of cached decrypted seeds.",
    "gauge",
    ("provider_name",),
)


class KMSMetrics:
    """The metrics of all KMS providers; `server` is the hash of the server's name."""

    def __init__(self, registry: CollectorRegistry | None, server: str) -> None:
        self.server = server
        self.latency = Histograms(_LATENCY, registry)
        self.key_ids = Counters(_KEY_IDS, registry)
        self.status_at = Gauges(_STATUS_AT, registry)
        self.invalid_ids = Counters(_INVALID_IDS, registry)
        self.sources = Gauges(_SOURCES, registry)


class EncryptedObject(Struct, frozen=True):
    """A stored object: the encrypted `data`, and the `source` of its key, encrypted by the plugin."""

    data: bytes
    key_id: str
    source: bytes
    annotations: Mapping[str, bytes]
    type: int = _SEED_KEY

    @classmethod
    def read(cls, data: bytes) -> "EncryptedObject":
        """Decode stored bytes. Raises `TransformError`."""
        tree: Tree = {}
        try:
            _READER.fill(tree, data, FieldBudget(1000))
        except (ValueError, RequestEntityTooLarge):
            raise TransformError("the stored data is not a KMS v2 message") from None
        found = cls(
            tree.get("data", b""), tree.get("key_id", ""), tree.get("source", b""), tree.get("annotations", {}),
            tree.get("type", _DATA_KEY),
        )  # fmt: skip
        if not found.data:
            raise TransformError("the stored data is empty")
        found.check()
        return found

    def write(self) -> bytes:
        """Return the encoded message."""
        tree: Tree = {"data": self.data, "key_id": self.key_id, "source": self.source, "annotations": self.annotations}
        return _WRITE(tree | {"type": self.type})

    def check(self) -> None:
        """Raises `TransformError` if a field is not allowed by KMS v2."""
        size = sum(len(name) + len(value) for name, value in self.annotations.items())
        rules = (
            (self.type not in (_DATA_KEY, _SEED_KEY), f"the type of the encrypted key is unknown: {self.type}"),
            (not self.source, "the encrypted key is empty"),
            (len(self.source) > _LONGEST_SOURCE, f"the encrypted key has more than {_LONGEST_SOURCE} bytes"),
            (bool(_key_id_problem(self.key_id)), f"the key ID is {_key_id_problem(self.key_id)}"),
            (size > _LARGEST_ANNOTATIONS, f"the annotations have more than {_LARGEST_ANNOTATIONS} bytes"),
            (
                not all("." in name for name in self.annotations),
                "an annotation's name is not a fully qualified domain name",
            ),
        )
        for holds, problem in rules:
            if holds:
                raise TransformError(problem)

    @property
    def source_id(self) -> tuple[object, ...]:
        """The cache key of the source."""
        return (self.type, self.source, self.key_id, tuple(sorted(self.annotations.items())))


class _Seed:
    """Encrypts and decrypts with keys derived from a seed."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed

    def encrypt(self, data: bytes, context: bytes) -> bytes:
        info = random_source().bytes(_INFO)
        return info + self._cipher(info).encrypt(data, context)

    def decrypt(self, data: bytes, context: bytes) -> Decrypted:
        if len(data) < _INFO:
            raise TransformError("the stored data is too short")
        return self._cipher(data[:_INFO]).decrypt(data[_INFO:], context)

    def _cipher(self, info: bytes) -> AESGCM:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

        return AESGCM(HKDFExpand(SHA256(), _KEY, info).derive(self._seed))


class _Current(Struct, frozen=True):
    """The seed for writes: its stored form, and until when it may be used (loop time)."""

    seed: _Seed
    stored: EncryptedObject
    expires: float


class KMSProvider:
    """A `Transformer` with a KMS plugin; `run` keeps its seed usable."""

    def __init__(self, config: KMS, metrics: KMSMetrics, log: Logger) -> None:
        self.prefix = f"k8s:enc:kms:v2:{config.name}:".encode()
        self.name = config.name
        self.problem = "it has not been probed yet"
        """Why the plugin is not healthy; empty if it is."""
        self.timeout = float(config.timeout)
        """The timeout of a call in seconds."""
        self._metrics = metrics
        self._log = log
        self._service = service("kms_v2")
        self._channel = GrpcChannel(config.endpoint)
        self._version = ""
        self._current: _Current | None = None
        self._seeds: dict[tuple[object, ...], _Seed | AESGCM] = {}  # the least recently used first
        self._obtaining: dict[tuple[object, ...], asyncio.Future[None]] = {}

    def encrypt(self, data: bytes, context: bytes) -> bytes:
        """See `Transformer`."""
        current = self._current
        if current is None:
            raise TransformError(f"the KMS provider {self.name} has no key: {self.problem}")
        if monotonic() > current.expires:
            raise TransformError(f"the key of the KMS provider {self.name} may not be used any more: {self.problem}")
        self._count("to_storage", current.stored.key_id)
        stored = current.stored
        encrypted = current.seed.encrypt(data, context)
        return EncryptedObject(encrypted, stored.key_id, stored.source, stored.annotations, stored.type).write()

    def decrypt(self, data: bytes, context: bytes) -> Decrypted:
        """See `Transformer`."""
        found = EncryptedObject.read(data)
        seed = self._seeds.pop(found.source_id, None)
        if seed is None:
            raise KeyNeeded(partial(self._obtain, found))
        self._seeds[found.source_id] = seed
        self._count("from_storage", found.key_id)
        current = self._current
        stale = current is None or (found.key_id, found.type) != (current.stored.key_id, current.stored.type)
        return Decrypted(seed.decrypt(found.data, context).data, stale)

    async def run(self) -> None:
        """Call the plugin's Status periodically until cancelled."""
        while True:
            await asyncio.sleep(_ILL if self.problem else _WELL)
            await self.probe()

    async def probe(self) -> None:
        """Call the plugin's Status, and get a new seed if its key has changed."""
        try:
            status = await self._call("Status", {})
            self._check(status)
            await self._renew(status["key_id"])
            problem = ""
        except TransformError as error:
            problem = str(error)
        if problem != self.problem:
            self._log.info("probed KMS provider", provider=self.name, problem=problem)
        self.problem = problem

    async def close(self) -> None:
        """Close the connection; pending calls fail."""
        await self._channel.close()

    def _check(self, status: Tree) -> None:
        version, health, key_id = (str(status.get(name, "")) for name in ("version", "healthz", "key_id"))
        if health != "ok":
            raise TransformError(f"the KMS provider {self.name} reports that it is unhealthy: {health[:200]!r}")
        if version not in _VERSIONS or version != (self._version or version):
            raise TransformError(f"the KMS provider {self.name} speaks another version than v2: {version[:20]!r}")
        self._version = version
        if problem := _key_id_problem(key_id):
            self._metrics.invalid_ids.add(self.name, "empty" if not key_id else "too_long")
            raise TransformError(f"the KMS provider {self.name} returned a key ID that is {problem}")
        self._metrics.status_at.set(wall_seconds(), self.name, hashed(key_id), self._metrics.server)

    async def _renew(self, key_id: str) -> None:
        """Extend the use of the seed, or replace it if the plugin has another key."""
        expires, current = monotonic() + _USABLE, self._current
        if current is not None and current.stored.key_id == key_id:
            self._current = _Current(current.seed, current.stored, expires)
            return
        secret = random_source().bytes(_SEED)
        answer = await self._call("Encrypt", {"plaintext": secret, "uid": random_source().uid()})
        stored = EncryptedObject(
            b"", answer.get("key_id", ""), answer.get("ciphertext", b""), answer.get("annotations", {})
        )
        stored.check()
        if stored.key_id != key_id:
            raise TransformError(f"the KMS provider {self.name} encrypts with another key than its Status reports")
        seed = _Seed(secret)
        self._keep(stored.source_id, seed)
        self._current = _Current(seed, stored, expires)

    async def _obtain(self, found: EncryptedObject) -> None:
        """Decrypt the key of an object; concurrent calls share one request. Raises `TransformError`."""
        known, obtaining = found.source_id, self._obtaining
        if known in obtaining:
            await asyncio.shield(obtaining[known])
            return
        obtaining[known] = done = asyncio.get_running_loop().create_future()
        try:
            request = {"ciphertext": found.source, "key_id": found.key_id, "annotations": found.annotations}
            answer = await self._call("Decrypt", request | {"uid": random_source().uid()})
            self._keep(known, _cipher(answer.get("plaintext", b""), found.type))
        finally:
            del obtaining[known]
            done.set_result(None)  # waiters check again, and call if necessary

    async def _call(self, method: str, message: Tree) -> Tree:
        began, code = monotonic(), "OK"
        try:
            return await self._channel.unary(self._service, method, message, self.timeout)
        except GrpcError as error:
            code = error.code
            raise TransformError(f"the KMS provider {self.name} failed to answer {method}: {error}", code) from None
        finally:
            path = self._service[method].path
            self._metrics.latency.observe(monotonic() - began, self.name, path, _camel(code))

    def _keep(self, source_id: tuple[object, ...], seed: "_Seed | AESGCM") -> None:
        self._seeds[source_id] = seed
        while len(self._seeds) > _MOST_SEEDS:
            del self._seeds[next(iter(self._seeds))]
        self._metrics.sources.set(len(self._seeds), self.name)

    def _count(self, direction: str, key_id: str) -> None:
        self._metrics.key_ids.add(direction, self.name, hashed(key_id), self._metrics.server)


def _cipher(secret: bytes, kind: int) -> "_Seed | AESGCM":
    if kind == _SEED_KEY:
        if len(secret) < _SEED:
            raise TransformError("the decrypted seed is too short")
        return _Seed(secret)
    try:
        return AESGCM(secret)
    except ValueError:
        raise TransformError("the decrypted key has a length that AES does not know") from None


def _key_id_problem(key_id: str) -> str:
    if not key_id:
        return "empty"
    return f"longer than {_LONGEST_KEY_ID} bytes" if len(key_id.encode()) > _LONGEST_KEY_ID else ""


def _camel(code: str) -> str:
    """Return a gRPC code as Go writes it: `DeadlineExceeded`."""
    return code if code == "OK" else "".join(word.capitalize() for word in code.split("_"))
