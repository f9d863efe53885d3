"""The flags of the API server, by the names its users know; a file for each group of them."""

from apiserver_stub.flags.admission import AdmissionOptions
from apiserver_stub.flags.aggregation import AggregationOptions
from apiserver_stub.flags.apis import ApiOptions
from apiserver_stub.flags.audit import AuditOptions
from apiserver_stub.flags.authentication import AuthenticationOptions
from apiserver_stub.flags.authorization import AuthorizationOptions
from apiserver_stub.flags.egress import EgressOptions
from apiserver_stub.flags.encryption import EncryptionOptions
from apiserver_stub.flags.etcd import EtcdOptions
from apiserver_stub.flags.features import (
    CBOR,
    COMPRESSION,
    CONSTRAINED_IMPERSONATION,
    IDENTITY,
    LOG_STREAMS,
    PASSED_ON_WEBSOCKETS,
    POD_CERTIFICATES,
    SCALE_TO_ZERO,
    SHARDS,
    STORAGE_MIGRATION,
    STORAGE_VERSIONS,
    STREAM_CREATION,
    STREAMING_LISTS,
    TRANSLATION,
    TRUST_BUNDLES,
    TUNNELS,
    UNSAFE_DELETION,
    FeatureOptions,
)
from apiserver_stub.flags.flow_control import FlowControlOptions
from apiserver_stub.flags.kubelet import KubeletOptions
from apiserver_stub.flags.network import NetworkOptions
from apiserver_stub.flags.serving import ServingOptions
from apiserver_stub.flags.storage import DATABASE, ETCD, StorageOptions
from apiserver_stub.flags.token_authentication import TokenAuthenticationOptions
from apiserver_stub.flags.tokens import TokenOptions
from apiserver_stub.flags.tracing import TracingOptions
from controller_manager.component.options import LoggingOptions, MetricsOptions, ProfilingOptions, logs_allowed
from controller_manager.component.request_headers import check_uid_headers
from controller_manager.options import FlagSet

__all__ = [
    "CBOR",
    "COMPRESSION",
    "CONSTRAINED_IMPERSONATION",
    "DATABASE",
    "ETCD",
    "FLAGS",
    "IDENTITY",
    "LOG_STREAMS",
    "PASSED_ON_WEBSOCKETS",
    "POD_CERTIFICATES",
    "SCALE_TO_ZERO",
    "SHARDS",
    "STORAGE_MIGRATION",
    "STORAGE_VERSIONS",
    "STREAMING_LISTS",
    "STREAM_CREATION",
    "TRANSLATION",
    "TRUST_BUNDLES",
    "TUNNELS",
    "UNSAFE_DELETION",
    "AdmissionOptions",
    "AggregationOptions",
    "ApiOptions",
    "AuditOptions",
    "AuthenticationOptions",
    "AuthorizationOptions",
    "EgressOptions",
    "EncryptionOptions",
    "EtcdOptions",
    "FeatureOptions",
    "FlowControlOptions",
    "KubeletOptions",
    "NetworkOptions",
    "ServingOptions",
    "StorageOptions",
    "TokenAuthenticationOptions",
    "TokenOptions",
    "TracingOptions",
]

FLAGS = FlagSet(
    ServingOptions,
    AuthenticationOptions,
    AuthorizationOptions,
    AdmissionOptions,
    AggregationOptions,
    ApiOptions,
    TokenAuthenticationOptions,
    AuditOptions,
    TokenOptions,
    FlowControlOptions,
    StorageOptions,
    EtcdOptions,
    EncryptionOptions,
    NetworkOptions,
    EgressOptions,
    KubeletOptions,
    TracingOptions,
    MetricsOptions,
    ProfilingOptions,
    FeatureOptions,
    LoggingOptions,
    checks=(logs_allowed, check_uid_headers),
)
