"""The flags of the process itself; those of a controller stand beside the controller."""

from ipaddress import ip_address
from typing import ClassVar, Self

from pydantic import field_validator, model_validator

from controller_manager.api.platform import SYSTEM_NAMESPACE
from controller_manager.options import Duration, Int32, Options, StringList, flag

_RETRY_JITTER = 1.2  # a renewal is tried at most this much later than the retry period says


class ManagerOptions(Options):
    """Which controllers run, and how they start."""

    title: ClassVar[str] = "Generic"

    controllers: StringList = flag(
        ("*",),
        "controllers to run: '*' is every controller that is on by default, 'foo' turns the controller foo on and "
        "'-foo' turns it off; of several mentions of one controller the first counts",
    )
    controller_start_interval: Duration = flag(0.0, "time between the starts of two controllers", minimum=0)
    min_resync_period: Duration = flag(
        "12h0m0s",
        "every controller looks at all objects again after a random time between this and twice this; 0 never",
        minimum=0,
    )


class ClientOptions(Options):
    """How the API server is reached."""

    title: ClassVar[str] = "Client"

    clusterconfig: str = flag(
        "",
        "client configuration file; without it and --master, the service account of the pod is used",
        aliases=("kubeconfig",),
        metavar="file",
    )
    master: str = flag("", "address of the API server, in place of the one in the client configuration")
    cluster_api_qps: float = flag(
        20.0,
        "requests a second of each controller to the API server; 0 sets no limit",
        aliases=("kube-api-qps",),
        minimum=0,
    )
    cluster_api_burst: Int32 = flag(
        30,
        "requests of each controller to the API server that may go out at once",
        aliases=("kube-api-burst",),
        minimum=1,
    )


class ElectionOptions(Options):
    """One replica leads, the others stand by."""

    title: ClassVar[str] = "Leader election"

    leader_elect: bool = flag(True, "run the controllers only while holding the lease; for replicas")
    leader_elect_lease_duration: Duration = flag(
        "15s", "how long a standby waits after the last renewal it saw before it takes the lease", minimum=1
    )
    leader_elect_renew_deadline: Duration = flag(
        "10s", "how long a leader that cannot renew the lease goes on trying before it stops", minimum=0.001
    )
    leader_elect_retry_period: Duration = flag("2s", "time between two tries to take or renew the lease", minimum=0.001)
    leader_elect_resource_lock: str = flag(
        "leases", "kind of the lock object", choices=("leases",), inert="the lock object is always a lease"
    )
    leader_elect_resource_name: str = flag("cluster-controller-manager", "name of the lock object")
    leader_elect_resource_namespace: str = flag(SYSTEM_NAMESPACE, "namespace of the lock object")

    @model_validator(mode="after")
    def _leaves_time_to_stop(self) -> Self:
        if self.leader_elect_renew_deadline >= self.leader_elect_lease_duration:
            raise ValueError("--leader-elect-renew-deadline must be less than --leader-elect-lease-duration")
        if self.leader_elect_retry_period * _RETRY_JITTER >= self.leader_elect_renew_deadline:
            raise ValueError(
                f"--leader-elect-retry-period times {_RETRY_JITTER} must be less than --leader-elect-renew-deadline"
            )
        return self


class ServingOptions(Options):
    """Where health, metrics and the like are served."""

    title: ClassVar[str] = "Secure serving"

    bind_address: str = flag("0.0.0.0", "address to listen on; empty, 0.0.0.0 and :: are all")  # noqa: S104
    secure_port: int = flag(10257, "port to serve HTTPS on; 0 serves nothing", minimum=0, maximum=65535)
    cert_dir: str = flag(
        "",
        "folder in which the self-signed certificate is kept; without it, it lasts as long as the process; not used "
        "with --tls-cert-file",
    )
    tls_cert_file: str = flag("", "file of the certificate to show, followed by those that signed it", metavar="file")
    tls_private_key_file: str = flag("", "file of the private key of --tls-cert-file", metavar="file")

    @field_validator("bind_address")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if value:
            ip_address(value)
        return value

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            raise ValueError("--tls-cert-file and --tls-private-key-file must be given together")
        return self


class AccessOptions(Options):
    """Who may see what is served."""

    title: ClassVar[str] = "Authentication and authorization"

    client_ca_file: str = flag(
        "",
        "file of the authorities whose client certificates are believed; the common name is the user and the "
        "organizations are the groups",
        metavar="file",
    )
    authentication_token_webhook_cache_ttl: Duration = flag(
        "10s", "how long the API server's answer about a bearer token is remembered", minimum=0
    )
    authorization_always_allow_paths: StringList = flag(
        ("/healthz", "/readyz", "/livez"), "paths anybody may see, with all that lies below them"
    )
    authorization_webhook_cache_authorized_ttl: Duration = flag(
        "10s", "how long the API server's answer that a caller may see a page is remembered", minimum=0
    )
    authorization_webhook_cache_unauthorized_ttl: Duration = flag(
        "10s", "how long the API server's answer that a caller may not see a page is remembered", minimum=0
    )


class LogOptions(Options):
    """How the process speaks."""

    title: ClassVar[str] = "Logs"

    logging_format: str = flag("text", "form of the log lines", choices=("text", "json"))
    v: int = flag(0, "how much is logged; 4 and more show every reconcile", short="v", minimum=0)


GROUPS: tuple[type[Options], ...] = (
    ManagerOptions,
    ClientOptions,
    ElectionOptions,
    ServingOptions,
    AccessOptions,
    LogOptions,
)
