"""The flags of the API server, one file per group."""

from apiserver_stub.common.flags.admission import AdmissionOptions
from apiserver_stub.common.flags.aggregation import AggregationOptions
from apiserver_stub.common.flags.apis import ApiOptions
from apiserver_stub.common.flags.audit import AuditOptions
from apiserver_stub.common.flags.authentication import AuthenticationOptions
from apiserver_stub.common.flags.authorization import AuthorizationOptions
from apiserver_stub.common.flags.egress import EgressOptions
from apiserver_stub.common.flags.encryption import EncryptionOptions
from apiserver_stub.common.flags.etcd import EtcdOptions
from apiserver_stub.common.flags.features import (
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
    ServerFeatureOptions,
)
from apiserver_stub.common.flags.flow_control import FlowControlOptions
from apiserver_stub.common.flags.kubelet import KubeletOptions
from apiserver_stub.common.flags.network import NetworkOptions
from apiserver_stub.common.flags.serving import ServingOptions
from apiserver_stub.common.flags.storage import DATABASE, ETCD, StorageOptions
from apiserver_stub.common.flags.token_authentication import TokenAuthenticationOptions
from apiserver_stub.common.flags.tokens import TokenOptions
from apiserver_stub.common.flags.tracing import TracingOptions
from controller_manager.common.component.options import LoggingOptions, MetricsOptions, ProfilingOptions, logs_allowed
from controller_manager.common.component.request_headers import check_uid_headers
from controller_manager.common.options.parse import FlagSet

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
    "FlowControlOptions",
    "KubeletOptions",
    "NetworkOptions",
    "ServerFeatureOptions",
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
    ServerFeatureOptions,
    LoggingOptions,
    checks=(logs_allowed, check_uid_headers),
)
