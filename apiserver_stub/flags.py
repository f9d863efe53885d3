"""The flags of the API server, by the names its users know."""

import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Self
from urllib.parse import urlsplit

from pydantic import field_validator, model_validator

from controller_manager.component import features
from controller_manager.component.features import COMMON, feature_gates
from controller_manager.component.options import LoggingOptions, MetricsOptions, ProfilingOptions, logs_allowed
from controller_manager.component.request_headers import RequestHeaderOptions
from controller_manager.component.secure_serving import SecureServingOptions
from controller_manager.options import Duration, FlagSet, Options, Quantity, StringList, StringMultimap, flag


class ServingOptions(SecureServingOptions):
    """The serving of requests: ports, addresses, certificates, and bounds of time and size."""

    title: ClassVar[str] = "Serving"

    secure_port: int = flag(6443, "Port to serve HTTPS on; 0 takes a free one.", minimum=0, maximum=65535)
    cert_dir: str = flag("", "Folder of the server's own certificate authorities; the data folder when empty.")
    advertise_address: str = flag(
        "", "Address at which pods and nodes reach this server; found by the route of the host when empty."
    )
    request_timeout: Duration = flag("1m", "Longest a write may take; reads have bounds of their own.", minimum=0.001)
    min_request_timeout: int = flag(
        1800, "Seconds a watch stays open at least when the client names no time; at most twice that.", minimum=1
    )
    max_request_bytes: Quantity = flag("3Mi", "Size of the largest request body that is read.", minimum=1024)
    shutdown_delay_duration: Duration = flag(
        "0s", "How long requests are still served after a termination signal, while /readyz fails.", minimum=0
    )
    livez_grace_period: Duration = flag(
        "0s", "How long after the start /livez may succeed although the start has not completed.", minimum=0
    )

    @field_validator("advertise_address")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if value:
            ip_address(value)
        return value


class AccessOptions(Options):
    """Authentication and authorization of callers."""

    title = "Authentication and authorization"

    client_ca_file: str = flag(
        "",
        "File of certificate authorities whose client certificates are accepted beside the server's own; read again "
        "when it changes.",
    )
    token_auth_file: str = flag("", 'File of bearer tokens; lines of token,user,uid and optionally "group1,group2".')
    authorization_mode: StringList = flag(
        ("AlwaysAllow",), "How requests of known callers are authorized; AlwaysAllow is the only mode so far."
    )

    @field_validator("authorization_mode")
    @classmethod
    def _is_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [mode for mode in value if mode != "AlwaysAllow"]
        if wrong or not value:
            raise ValueError(f"the only mode so far is AlwaysAllow, got {','.join(value)!r}")
        return value


class AggregationOptions(RequestHeaderOptions):
    """Aggregated APIs: how this server speaks for its callers to servers of others, and who speaks so to this one."""

    title: ClassVar[str] = "Aggregated APIs"

    requestheader_client_ca_file: str = flag(
        "",
        "File of the authorities of proxies that say in headers for whom they speak; read again when it changes. "
        "Without it no proxy is believed, and of the following flags none has an effect.",
    )
    proxy_client_cert_file: str = flag(
        "",
        "File of the certificate shown to the servers of others that requests are passed on to; read again when it "
        "changes. One of the server's own authority for proxies when empty.",
    )
    proxy_client_key_file: str = flag("", "File of the key of --proxy-client-cert-file.")
    enable_aggregator_routing: bool = flag(
        False, "Whether requests for servers of others go to an endpoint of their service instead of its cluster IP."
    )
    aggregator_reject_forwarding_redirect: bool = flag(
        True, "Whether a redirect that such a server answers is refused with 502 instead of handed on."
    )

    @model_validator(mode="after")
    def _come_together(self) -> Self:
        if bool(self.proxy_client_cert_file) != bool(self.proxy_client_key_file):
            raise ValueError("--proxy-client-cert-file and --proxy-client-key-file must be given together")
        return self


class TokenOptions(Options):
    """Tokens of service accounts: who issues them, with which keys, and for how long."""

    title = "Service account tokens"

    service_account_issuer: StringList = flag(
        ("https://kubernetes.default.svc.cluster.local",),
        "Issuer of tokens, a URL or a name; of several the first issues, and tokens of all are accepted.",
    )
    service_account_signing_key_file: str = flag(
        "", "File of the private key tokens are signed with, RSA or ECDSA; made in --cert-dir as sa.key when empty."
    )
    service_account_key_file: StringList = flag(
        (),
        "File of keys that tokens are also verified with, public or private, RSA or ECDSA; repeatable. Needs "
        "--service-account-signing-key-file.",
    )
    service_account_jwks_uri: str = flag(
        "", "URL at which others find the keys to verify tokens with; that of this server when empty."
    )
    api_audiences: StringList = flag(
        (), "What this server is called by tokens that are meant for it; the issuers when empty."
    )
    service_account_max_token_expiration: Duration = flag(
        "0s", "Longest lifetime of a token, between 1h and 2^32 seconds; what asks for more gets this. 0 sets no bound."
    )
    service_account_extend_token_expiration: bool = flag(
        True,
        "Whether tokens that nodes ask for on behalf of pods last a year, so that programs which read theirs only once "
        "go on working.",
    )
    service_account_lookup: bool = flag(
        True, "Whether the service account of a token, and what the token is bound to, must exist when it is used."
    )

    @model_validator(mode="after")
    def _make_sense(self) -> Self:
        issuers = self.service_account_issuer
        if not issuers or not all(issuers) or len(set(issuers)) < len(issuers):
            raise ValueError("--service-account-issuer must name at least one issuer, and each of them once")
        if any(":" in issuer and not urlsplit(issuer).scheme for issuer in issuers):
            raise ValueError("--service-account-issuer has a colon, and so must be a URL")
        if self.service_account_key_file and not self.service_account_signing_key_file:
            raise ValueError("--service-account-key-file needs --service-account-signing-key-file")
        if self.service_account_jwks_uri and not self.service_account_jwks_uri.startswith("https://"):
            raise ValueError("--service-account-jwks-uri must be an https URL")
        longest = self.service_account_max_token_expiration
        if longest and not 3600 <= longest <= 1 << 32:
            raise ValueError("--service-account-max-token-expiration must be between 1h and 2^32 seconds, or 0")
        return self


DATABASE = "apiserver.db"  # in the data folder


class StorageOptions(Options):
    """The storage of objects."""

    title = "Storage"

    storage_backend: str = flag("sqlite", "Where objects are kept.", choices=("sqlite", "memory"))
    data_dir: str = flag("apiserver-data", "Folder of the database and of what the server makes for itself.")
    accept_data_loss: bool = flag(
        False,
        "Start although acknowledged writes are lost, with what is left of the store; revisions jump far ahead, so "
        "that none is given out again. Without it such a start is refused, and says what is lost.",
    )
    watch_cache_window: Duration = flag(
        "5m", "How much history is kept for watches and consistent lists to resume from.", minimum=1
    )
    watch_cache_size: Quantity = flag(
        "256Mi",
        "How many bytes of objects this history holds of all kinds together, the oldest going first; of one kind it "
        "holds 128Mi at most.",
        minimum=1 << 20,
    )
    representation_cache_size: Quantity = flag(
        "256Mi",
        "How many bytes of objects in protobuf, of rows of tables and of events of watches are kept once they are "
        "encoded, for all clients; 0 encodes them anew for each.",
        minimum=0,
    )
    event_ttl: Duration = flag("1h", "How long an event is kept after its last write; 0 keeps it for good.", minimum=0)

    @property
    def folder(self) -> Path:
        """The data folder."""
        return Path(self.data_dir)


class NetworkOptions(Options):
    """The addresses and ports the cluster gives out."""

    title = "Network"

    service_cluster_ip_range: str = flag(
        "10.0.0.0/24",
        "Range of the addresses of services, in CIDR form; two ranges of different families, divided by a comma, "
        "for services that have an address of each.",
    )
    service_node_port_range: str = flag(
        "30000-32767", "Ports that are given to services to be reached at on every node, both ends included."
    )

    @field_validator("service_cluster_ip_range")
    @classmethod
    def _is_range(cls, value: str) -> str:
        networks = _networks(value)
        for network in networks:
            if network.num_addresses < 4:
                raise ValueError(f"{network} holds too few addresses")
        if len(networks) > 2 or len({network.version for network in networks}) < len(networks):
            raise ValueError(f"{value} must be one range, or one of each family")
        return value

    @field_validator("service_node_port_range")
    @classmethod
    def _are_ports(cls, value: str) -> str:
        _port_range(value)
        return value

    @property
    def services(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The ranges of service addresses, the family of services that do not say theirs first."""
        return _networks(self.service_cluster_ip_range)

    @property
    def node_ports(self) -> range:
        """The ports of services on nodes."""
        return _port_range(self.service_node_port_range)

    @property
    def first_service(self) -> str:
        """The address of the service `kubernetes`."""
        return str(self.services[0].network_address + 1)


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(part.strip()) for part in text.split(","))


def _port_range(text: str) -> range:
    """Parse ports written as `first-last`, or `first+more`."""
    found = re.fullmatch(r"(\d{1,5})([-+])(\d{1,5})", text.strip(), re.ASCII)
    if found is None:
        raise ValueError(f"{text!r} must be two ports, as in 30000-32767")
    first, last = int(found[1]), int(found[3]) + (int(found[1]) if found[2] == "+" else 0)
    if not 0 < first <= last < 65536:
        raise ValueError(f"{text} must be two ports between 1 and 65535, the smaller one first")
    return range(first, last + 1)


COMPRESSION = "APIResponseCompression"
CBOR = "CBORServingAndStorage"
UNSAFE_DELETION = "AllowUnsafeMalformedObjectDeletion"
STREAMING_LISTS = "WatchList"
SCALE_TO_ZERO = "HPAScaleToZero"
_READ: Mapping[str, str] = MappingProxyType(
    {
        **COMMON,
        COMPRESSION: "compresses large answers for clients that take gzip",
        CBOR: "reads and writes CBOR",
        UNSAFE_DELETION: "lets objects that cannot be read be deleted",
        STREAMING_LISTS: "sends lists as the beginning of a watch to clients that ask for that",
        SCALE_TO_ZERO: "lets autoscalers scale to zero",
    }
)


class FeatureOptions(features.FeatureOptions):
    """Features that are not on, or can be off."""

    effects: ClassVar[Mapping[str, str]] = _READ

    feature_gates: StringMultimap = feature_gates(_READ)


FLAGS = FlagSet(
    ServingOptions,
    AccessOptions,
    AggregationOptions,
    TokenOptions,
    StorageOptions,
    NetworkOptions,
    MetricsOptions,
    ProfilingOptions,
    FeatureOptions,
    LoggingOptions,
    checks=(logs_allowed,),
)
