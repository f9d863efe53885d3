"""Features that are not on, or can be off."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from controller_manager.common.component import features
from controller_manager.common.component.features import COMMON, feature_gates
from controller_manager.common.component.request_headers import REMOTE_UID
from controller_manager.common.options import StringMultimap

COMPRESSION = "APIResponseCompression"
CBOR = "CBORServingAndStorage"
UNSAFE_DELETION = "AllowUnsafeMalformedObjectDeletion"
STREAMING_LISTS = "WatchList"
SHARDS = "ShardedListAndWatch"
SCALE_TO_ZERO = "HPAScaleToZero"
CONSTRAINED_IMPERSONATION = "ConstrainedImpersonation"
IDENTITY = "APIServerIdentity"
STORAGE_VERSIONS = "StorageVersionAPI"
STORAGE_MIGRATION = "StorageVersionMigrator"
TRUST_BUNDLES = "ClusterTrustBundle"
POD_CERTIFICATES = "PodCertificateRequest"
PASSED_ON_WEBSOCKETS = "ExtendWebSocketsToKubelet"
TRANSLATION = "TranslateStreamCloseWebsocketRequests"
TUNNELS = "PortForwardWebsockets"
STREAM_CREATION = "AuthorizePodWebsocketUpgradeCreatePermission"
LOG_STREAMS = "PodLogsQuerySplitStreams"
DEVICE_TAINT_RULES = "DRADeviceTaintRules"
DEVICE_POOL_STATUS = "DRAResourcePoolStatus"
STOP_SIGNALS = "ContainerStopSignals"
CROSS_NAMESPACE_SOURCES = "CrossNamespaceVolumeDataSource"
NODE_ALLOCATABLE = "DRANodeAllocatableResources"
WORKLOADS = "GenericWorkload"
STATEFUL_MAX_UNAVAILABLE = "MaxUnavailableStatefulSet"
PROJECTED_BUNDLES = "ClusterTrustBundleProjection"
VOLUME_LIMITS = "VolumeLimitScaling"
LIST_ATTRIBUTES = "DRAListTypeAttributes"
TOLERATION_COMPARISON = "TaintTolerationComparisonOperators"
COORDINATED_ELECTION = "CoordinatedLeaderElection"
SELINUX_MOUNT = "SELinuxMount"
_READ: Mapping[str, str] = MappingProxyType(
    {
        **COMMON,
        COMPRESSION: "compresses large answers for clients that take gzip",
        CBOR: "reads and writes CBOR",
        UNSAFE_DELETION: "lets objects that cannot be read be deleted",
        SHARDS: "lists and watches the part of a collection that shardSelector names",
        STREAMING_LISTS: "sends lists as the beginning of a watch to clients that ask for that",
        REMOTE_UID: "allows --requestheader-uid-headers",
        CONSTRAINED_IMPERSONATION: "lets users act as others only for some requests, by rules for that",
        SCALE_TO_ZERO: "lets autoscalers scale to zero",
        IDENTITY: "keeps a lease for each API server in the system namespace",
        STORAGE_VERSIONS: "tells in which versions objects are stored, where --runtime-config serves that",
        STORAGE_MIGRATION: "serves storagemigration.k8s.io/v1beta1 where --runtime-config says so",
        TRUST_BUNDLES: "serves cluster trust bundles where --runtime-config says so",
        DEVICE_TAINT_RULES: "serves rules that taint devices where --runtime-config says so",
        DEVICE_POOL_STATUS: "serves requests for the status of pools of devices where --runtime-config says so",
        PASSED_ON_WEBSOCKETS: "leaves WebSockets of commands and forwarded ports to kubelets that speak them",
        TRANSLATION: "speaks WebSocket with clients that run commands, for kubelets that do not",
        TUNNELS: "speaks WebSocket with clients that forward ports, for kubelets that do not",
        STREAM_CREATION: "lets only those have commands and forwarded ports who may create them, however they ask",
        LOG_STREAMS: "lets one of the two streams of a container's log be asked for",
        POD_CERTIFICATES: "lets pods mount certificates, and serves requests for them where --runtime-config says so",
        STOP_SIGNALS: "lets objects have signals that containers are stopped by",
        CROSS_NAMESPACE_SOURCES: "lets objects have claims filled from another namespace",
        NODE_ALLOCATABLE: "lets objects have devices that are resources of their nodes",
        WORKLOADS: "lets objects have pods that are scheduled in groups",
        STATEFUL_MAX_UNAVAILABLE: "lets objects have maxUnavailable, of stateful sets",
        PROJECTED_BUNDLES: "lets objects have cluster trust bundles in projected volumes",
        TOLERATION_COMPARISON: "lets tolerations compare numbers",
        LIST_ATTRIBUTES: "lets devices have attributes of several values",
        VOLUME_LIMITS: "lets objects have preventPodSchedulingIfMissing, of CSI drivers",
        SELINUX_MOUNT: "lets pods have the SELinux change policy MountOption",
        COORDINATED_ELECTION: "lets leases have a strategy and a preferred holder",
    }
)


class ServerFeatureOptions(features.FeatureOptions):
    """Features that are not on, or can be off."""

    effects: ClassVar[Mapping[str, str]] = _READ

    feature_gates: StringMultimap = feature_gates(_READ)
