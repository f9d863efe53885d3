"""The plugin EventRateLimit (off by default): limits the rate of events of the server, per namespace, per user, and per
source and object.
"""

from collections import OrderedDict

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.common.config_file import ConfigDocument, ConfigModel
from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.storage.worker import ALONE, Worker
from controller_manager.common.api.errors import TooManyRequests
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.base.bucket import TokenBucket
from controller_manager.common.base.clock import monotonic

NAME = "EventRateLimit"
_TYPES = ("Server", "Namespace", "User", "SourceAndObject")
_KEPT = 4096  # buckets, unless the limit has a cache size
_MOST = (1 << 31) - 1
_KEY = (
    ("source", "component"),
    ("source", "host"),
    *(("involvedObject", field) for field in ("kind", "namespace", "name", "uid", "apiVersion")),
)


class Limit(ConfigModel, forbid_unknown_fields=False):
    """`qps` events per second with bursts of up to `burst`; the `cache_size` most recently used keys are cached."""

    type: str = ""
    qps: int = 0
    burst: int = 0
    cache_size: int = 0


class EventRateLimitConfiguration(ConfigDocument, forbid_unknown_fields=False):
    """The document that configures the plugin."""

    kind: str = "Configuration"
    limits: tuple[Limit | None, ...] = ()


CONFIGURATION_TYPES = {f"eventratelimit.admission.{GROUP_DOMAIN}/v1alpha1": EventRateLimitConfiguration}


def check(configuration: EventRateLimitConfiguration) -> ErrorList:
    """Return the validation errors of a configuration."""
    errors: ErrorList = ErrorList()
    limits: FieldPath = (None, "limits")
    if not configuration.limits:
        errors.invalid(limits, [], "must not be empty")
    for index, found in enumerate(configuration.limits):
        at, limit = (limits, index), found or Limit()
        if limit.type not in _TYPES:
            errors.unsupported((at, "type"), limit.type, _TYPES)
        for field, value in (("burst", limit.burst), ("qps", limit.qps)):
            if not 0 < value <= _MOST:
                errors.invalid((at, field), value, f"must be between 1 and {_MOST}")
        if limit.type != "Server" and not 0 <= limit.cache_size <= _MOST:
            errors.invalid((at, "cacheSize"), limit.cache_size, f"must be between 0 and {_MOST}")
    return errors


def key_of(limit: str, attributes: Attributes) -> str:
    """Return the key of the bucket of an event."""
    match limit:
        case "Namespace":
            return attributes.namespace
        case "User":
            return attributes.user.name
        case "SourceAndObject":
            return "".join(get_in(attributes.object, path) or "" for path in _KEY)
    return ""


class _Buckets:
    """The buckets of one limit, least recently used first.

    With several worker processes, the Server limit is divided between them. The other limits are not: a client keeps
    its connection to one process, and would get only a share of its rate.
    """

    def __init__(self, limit: Limit, worker: Worker) -> None:
        self.limit = limit
        is_divided = limit.type == "Server"
        self._rate = limit.qps / worker.count if is_divided else float(limit.qps)
        self._burst = worker.share(limit.burst) if is_divided else limit.burst
        self._kept = limit.cache_size or _KEPT
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, key: str, now: float) -> bool:
        """Take a token; return whether there was one."""
        bucket = self._buckets.pop(key, None) or TokenBucket(self._rate, self._burst)
        self._buckets[key] = bucket
        if len(self._buckets) > self._kept:
            self._buckets.popitem(last=False)
        return bucket.try_take(now)


class EventRateLimit:
    """The plugin."""

    def __init__(self, configuration: EventRateLimitConfiguration, worker: Worker = ALONE) -> None:
        self._limits = [_Buckets(limit, worker) for limit in configuration.limits if limit is not None]

    async def validate(self, attributes: Attributes) -> None:
        """Raises `TooManyRequests` if a limit has no token for the event; a token is taken from every limit.

        Events of the group `events.k8s.io` and dry-run requests are not counted.
        """
        if attributes.kind.group or attributes.dry_run:
            return
        now = monotonic()
        keys = [(one, key_of(one.limit.type, attributes)) for one in self._limits]
        if spent := [f"{one.limit.type} {key!r}" for one, key in keys if not one.take(key, now)]:
            raise TooManyRequests(f"Too many requests: the limit of events is reached for {', '.join(spent)}")


def event_rate_limit(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin EventRateLimit. Raises `ValueError` without a configuration."""
    found = parts.configuration.document(NAME, CONFIGURATION_TYPES, check)
    if found is None:
        raise ValueError(f"--admission-control-config-file: the plugin {NAME} needs a configuration with limits")
    rule = Rule(EventRateLimit(found, parts.worker).validate, ("create", "update"), ("events",))
    return AdmissionPlugin(NAME, validating=(rule,))
