"""Flags of the audit: policy, backends and their settings."""

from typing import Any, ClassVar, Self

from pydantic import model_validator

from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import Duration

_MODES = ("batch", "blocking", "blocking-strict")
_VERSIONS = ("audit.k8s.io/v1",)
_MODE = (
    "When a request continues: batch, after its events are buffered; blocking, after they are delivered; "
    "blocking-strict, the same, and it is rejected if its RequestReceived event is not."
)
_BUFFER = "Maximum number of buffered events, further ones are dropped; for batch mode only."
_EVENT, _BATCH = 100 * 1024, 10 * 1024 * 1024  # bytes


class AuditOptions(Options):
    """The audit of requests."""

    title: ClassVar[str] = "Audit"

    audit_policy_file: str = flag(
        "", "File with the audit policy (audit.k8s.io/v1), which sets the audit level of requests."
    )

    audit_log_path: str = flag("", "File that audit events are appended to, one per line; - is standard output.")
    audit_log_maxage: int = flag(366, "Maximum age in days of old log files; 0 keeps them forever.", minimum=0)
    audit_log_maxbackup: int = flag(100, "Maximum number of old log files; 0 keeps all.", minimum=0)
    audit_log_maxsize: int = flag(
        100, "Size in megabytes at which the log file is rotated; 0 disables rotation.", minimum=0
    )
    audit_log_compress: bool = flag(False, "Whether old log files are compressed with gzip.")
    audit_log_format: str = flag(
        "json", "Format of the events: json, or legacy for lines of text.", choices=("legacy", "json")
    )
    audit_log_version: str = flag("audit.k8s.io/v1", "API version of the events.", choices=_VERSIONS)
    audit_log_mode: str = flag("blocking", _MODE, choices=_MODES)
    audit_log_batch_buffer_size: int = flag(10_000, _BUFFER)
    audit_log_batch_max_size: int = flag(1, "Maximum number of events in a batch; for batch mode only.")
    audit_log_batch_max_wait: Duration = flag(
        "0s", "How long to wait before a batch that is not full is written; for batch mode only.", minimum=0
    )
    audit_log_batch_throttle_enable: bool = flag(False, "Whether batches are limited by the following two flags.")
    audit_log_batch_throttle_qps: float = flag(
        0.0, "Maximum average number of batches per second; for batch mode only."
    )
    audit_log_batch_throttle_burst: int = flag(0, "Maximum burst of batches; for batch mode only.")
    audit_log_truncate_enabled: bool = flag(False, "Whether the sizes of events and batches are limited.")
    audit_log_truncate_max_event_size: int = flag(
        _EVENT,
        "Maximum size of an event in bytes; a larger one is stored without objects, and dropped if it is still "
        "too large.",
    )
    audit_log_truncate_max_batch_size: int = flag(_BATCH, "Maximum size of a batch in bytes; a larger one is split.")

    audit_webhook_config_file: str = flag("", "Kubeconfig file of the server that audit events are sent to.")
    audit_webhook_initial_backoff: Duration = flag(
        "10s",
        "Delay after the first failed attempt; it grows by half with each further attempt.",
        aliases=("audit-webhook-batch-initial-backoff",),
        minimum=0,
    )
    audit_webhook_version: str = flag("audit.k8s.io/v1", "API version of the events.", choices=_VERSIONS)
    audit_webhook_mode: str = flag("batch", _MODE, choices=_MODES)
    audit_webhook_batch_buffer_size: int = flag(10_000, _BUFFER)
    audit_webhook_batch_max_size: int = flag(400, "Maximum number of events in a batch; for batch mode only.")
    audit_webhook_batch_max_wait: Duration = flag(
        "30s", "How long to wait before a batch that is not full is sent; for batch mode only.", minimum=0
    )
    audit_webhook_batch_throttle_enable: bool = flag(True, "Whether batches are limited by the following two flags.")
    audit_webhook_batch_throttle_qps: float = flag(
        10.0, "Maximum average number of batches per second; for batch mode only."
    )
    audit_webhook_batch_throttle_burst: int = flag(15, "Maximum burst of batches; for batch mode only.")
    audit_webhook_truncate_enabled: bool = flag(False, "Whether the sizes of events and batches are limited.")
    audit_webhook_truncate_max_event_size: int = flag(
        _EVENT,
        "Maximum size of an event in bytes; a larger one is sent without objects, and dropped if it is still too "
        "large.",
    )
    audit_webhook_truncate_max_batch_size: int = flag(
        _BATCH, "Maximum size of a batch in bytes; a larger one is split."
    )

    @model_validator(mode="after")
    def _make_sense(self) -> Self:
        if self.audit_log_path:
            self._check("log")
        if self.audit_webhook_config_file:
            self._check("webhook")
        return self

    def _check(self, backend: str) -> None:
        """Raise ValueError for an invalid flag of a backend. Flags without effect are not checked."""
        if self.of(backend, "mode") == "batch":
            positive = ["batch_buffer_size", "batch_max_size"]
            if self.of(backend, "batch_throttle_enable"):
                positive += ["batch_throttle_qps", "batch_throttle_burst"]
            for name in positive:
                if self.of(backend, name) <= 0:
                    raise ValueError(f"--audit-{backend}-{name.replace('_', '-')} must be greater than 0")
        event, batch = self.of(backend, "truncate_max_event_size"), self.of(backend, "truncate_max_batch_size")
        if event <= 0:
            raise ValueError(f"--audit-{backend}-truncate-max-event-size must be greater than 0")
        if batch < event:
            raise ValueError(
                f"--audit-{backend}-truncate-max-batch-size must not be less than "
                f"--audit-{backend}-truncate-max-event-size"
            )

    def of(self, backend: str, name: str) -> Any:
        """Return the flag of that name that a backend has as the other one does."""
        return getattr(self, f"audit_{backend}_{name}")
