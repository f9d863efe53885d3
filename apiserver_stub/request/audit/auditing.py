"""Puts the audit together from its flags."""

from collections.abc import Callable, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry

from apiserver_stub.common.flags.audit import AuditOptions
from apiserver_stub.request.audit.auditor import Auditor
from apiserver_stub.request.audit.backends import Backend, BatchLimits, Mode
from apiserver_stub.request.audit.log_backend import LogBackend
from apiserver_stub.request.audit.log_file import Rotation
from apiserver_stub.request.audit.metrics import AuditMetrics
from apiserver_stub.request.audit.policy import PolicyEvaluator, read_policy
from apiserver_stub.request.audit.webhook_backend import Sender, WebhookBackend
from apiserver_stub.storage.worker import ALONE, Worker
from controller_manager.common.base.log import Logger
from controller_manager.common.base.tasks import all_of

_MEGABYTE = 1 << 20


class Auditing:
    """The audit of a server; without a policy, or a place for events, it has no `auditor`."""

    def __init__(self, auditor: Auditor | None = None, backends: Sequence[Backend] = ()) -> None:
        self.auditor = auditor
        self._backends = tuple(backends)

    async def run(self) -> None:
        """Deliver buffered events until canceled."""
        if self._backends:
            await all_of(*(backend.run() for backend in self._backends))

    async def close(self) -> None:
        """Deliver the remaining events within a few seconds."""
        if self._backends:
            await all_of(*(backend.close() for backend in self._backends))


def open_auditing(
    options: AuditOptions,
    registry: CollectorRegistry,
    log: Logger,
    webhook: Callable[[str, float], Sender],
    worker: Worker = ALONE,
) -> Auditing:
    """Return the audit configured by the flags. `webhook` creates a sender from a kubeconfig file and an initial
    backoff. Several worker processes write one log, and each gets its share of the batch rate. Raises `ValueError` or
    `OSError` for unusable files.
    """
    metrics = AuditMetrics(registry, log)
    if not options.audit_policy_file:
        return Auditing()
    evaluator = PolicyEvaluator(read_policy(Path(options.audit_policy_file)))
    backends: list[Backend] = []
    if options.audit_log_path:
        backends.append(_log_backend(options, metrics, worker))
    if options.audit_webhook_config_file:
        server = webhook(options.audit_webhook_config_file, options.audit_webhook_initial_backoff)
        backends.append(WebhookBackend(server, *_delivery(options, "webhook", worker), metrics))
    return Auditing(Auditor(evaluator, backends, metrics), backends) if backends else Auditing()


def _log_backend(options: AuditOptions, metrics: AuditMetrics, worker: Worker) -> LogBackend:
    rotation = Rotation(
        options.audit_log_maxsize * _MEGABYTE,
        options.audit_log_maxbackup,
        options.audit_log_maxage,
        options.audit_log_compress,
        worker.count > 1,
    )
    legacy = options.audit_log_format == "legacy"
    return LogBackend(options.audit_log_path, rotation, legacy, *_delivery(options, "log", worker), metrics)


def _delivery(options: AuditOptions, backend: str, worker: Worker) -> tuple[Mode, BatchLimits, int]:
    """Return how a backend delivers, and the bytes of an event (0: any number)."""
    of = options.of
    truncates = of(backend, "truncate_enabled")
    throttles = of(backend, "batch_throttle_enable")
    mode = Mode(of(backend, "mode"))
    limits = BatchLimits(
        max(of(backend, "batch_buffer_size"), 1),
        of(backend, "batch_max_size") if mode is Mode.BATCH else 1,
        of(backend, "truncate_max_batch_size") if truncates else 1 << 40,
        of(backend, "batch_max_wait"),
        of(backend, "batch_throttle_qps") / worker.count if mode is Mode.BATCH and throttles else 0.0,
        worker.share(of(backend, "batch_throttle_burst")),
    )
    return mode, limits, of(backend, "truncate_max_event_size") if truncates else 0
