"""Feature gates of the API server."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from controller_manager.common.component import features
from controller_manager.common.component.features import COMMON, feature_gates
from controller_manager.common.component.request_headers import REMOTE_UID
from controller_manager.common.options.types import StringMultimap

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
        UNSAFE_DELETION: "allows deleting objects that cannot be decoded",
        SHARDS: "lists and watches the part of a collection that shardSelector names",
        STREAMING_LISTS: "sends initial events in watches (streaming lists)",
        REMOTE_UID: "allows --requestheader-uid-headers",
        CONSTRAINED_IMPERSONATION: "restricts impersonation to some requests by separate permissions",
        SCALE_TO_ZERO: "allows minReplicas 0 in HorizontalPodAutoscalers",
        IDENTITY: "keeps a lease for each API server in the system namespace",
        STORAGE_VERSIONS: "publishes StorageVersions if --runtime-config serves them",
        STORAGE_MIGRATION: "serves storagemigration.k8s.io/v1beta1 if --runtime-config enables it",
        TRUST_BUNDLES: "serves ClusterTrustBundles if --runtime-config enables them",
        DEVICE_TAINT_RULES: "serves DeviceTaintRules if --runtime-config enables them",
        DEVICE_POOL_STATUS: "serves requests for the status of device pools if --runtime-config enables them",
        PASSED_ON_WEBSOCKETS: "forwards WebSockets of exec and port-forward to kubelets that support them",
        TRANSLATION: "translates WebSockets of exec for kubelets without support",
        TUNNELS: "translates WebSockets of port-forward for kubelets without support",
        STREAM_CREATION: "requires the verb create for exec and port-forward over WebSocket",
        LOG_STREAMS: "allows selecting stdout or stderr of container logs",
        POD_CERTIFICATES: "allows certificates in pods; serves PodCertificateRequests if --runtime-config enables them",
        STOP_SIGNALS: "allows stop signals of containers",
        CROSS_NAMESPACE_SOURCES: "allows volume data sources of other namespaces",
        NODE_ALLOCATABLE: "allows devices that map to node resources",
        WORKLOADS: "allows pods in scheduling groups",
        STATEFUL_MAX_UNAVAILABLE: "allows maxUnavailable in StatefulSets",
        PROJECTED_BUNDLES: "allows cluster trust bundles in projected volumes",
        TOLERATION_COMPARISON: "allows numeric comparison in tolerations",
        LIST_ATTRIBUTES: "allows list-type attributes of devices",
        VOLUME_LIMITS: "allows preventPodSchedulingIfMissing in CSIDrivers",
        SELINUX_MOUNT: "allows the SELinux change policy MountOption in pods",
        COORDINATED_ELECTION: "allows a strategy and a preferred holder in Leases",
    }
)


class ServerFeatureOptions(features.FeatureOptions):
    """Feature gates of the API server."""

    effects: ClassVar[Mapping[str, str]] = _READ

    feature_gates: StringMultimap = feature_gates(_READ)
