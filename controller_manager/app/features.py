"""The feature gates that the manager reads, and the version that determines their defaults."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from pydantic import field_validator

from controller_manager.common.api.platform import API_VERSION
from controller_manager.common.component import features
from controller_manager.common.component.features import COMMON, OURS, check_component, feature_gates
from controller_manager.common.component.request_headers import REMOTE_UID
from controller_manager.common.options.flag import flag
from controller_manager.common.options.gates import Version
from controller_manager.common.options.types import StringList, StringMultimap

WATCH_LIST = "WatchListClient"
AUTOSCALER_TOLERANCE = "HPAConfigurableTolerance"
AUTOSCALER_TO_ZERO = "HPAScaleToZero"
TERMINATING_REPLICAS = "DeploymentReplicaSetTerminatingReplicas"
SELINUX_CHANGE_POLICY = "SELinuxChangePolicy"
STATEFUL_MAX_UNAVAILABLE = "MaxUnavailableStatefulSet"
TOLERATION_COMPARISON = "TaintTolerationComparisonOperators"
VOLUME_ATTRIBUTES_CLASS = "VolumeAttributesClass"
ROUTES_BY_WATCHES = "CloudControllerManagerWatchBasedRoutesReconciliation"
SUSPENDED_WITHOUT_START = "MutableSchedulingDirectivesForSuspendedJobs"
API_SERVER_IDENTITY = "APIServerIdentity"
STORAGE_VERSIONS = "StorageVersionAPI"
STORAGE_MIGRATION = "StorageVersionMigrator"
TRUST_BUNDLES = "ClusterTrustBundle"
POD_CERTIFICATES = "PodCertificateRequest"
DEVICES = "DynamicResourceAllocation"
DEVICE_ADMIN_ACCESS = "DRAAdminAccess"
DEVICE_ALTERNATIVES = "DRAPrioritizedList"
DEVICE_EXTENDED_RESOURCES = "DRAExtendedResource"
DEVICE_TAINTS = "DRADeviceTaints"
DEVICE_TAINT_RULES = "DRADeviceTaintRules"
DEVICE_POOL_STATUS = "DRAResourcePoolStatus"
EXPECTED_NODES = "NominatedNodeNameForExpectation"

READ: Mapping[str, str] = MappingProxyType(
    {
        **COMMON,
        REMOTE_UID: "allows --requestheader-uid-headers",
        WATCH_LIST: "fills informers by streaming lists where the server offers them",
        AUTOSCALER_TOLERANCE: "heeds the tolerances that a horizontal pod autoscaler sets for itself",
        AUTOSCALER_TO_ZERO: "scales from and to zero by object and external metrics",
        TERMINATING_REPLICAS: "counts pods that are being deleted in the status of replica sets and deployments",
        STATEFUL_MAX_UNAVAILABLE: "allows rolling updates of stateful sets with maxUnavailable above 1",
        SUSPENDED_WITHOUT_START: "takes the start time from jobs that are suspended",
        SELINUX_CHANGE_POLICY: "allows the controller that warns of SELinux labels",
        VOLUME_ATTRIBUTES_CLASS: "keeps classes of volume attributes that are used",
        API_SERVER_IDENTITY: "allows the controller that forgets storage versions of API servers that are gone",
        STORAGE_VERSIONS: "runs the controller that forgets storage versions of API servers that are gone",
        STORAGE_MIGRATION: "runs the controller that migrates storage versions",
        TRUST_BUNDLES: "publishes the authorities of the API server as a trust bundle",
        POD_CERTIFICATES: "deletes old requests for certificates of pods",
        DEVICES: "runs the controllers of claims to devices",
        DEVICE_ADMIN_ACCESS: "makes claims for the administration of devices of templates",
        DEVICE_EXTENDED_RESOURCES: "gives pods the extended resources that classes of devices stand for",
        DEVICE_TAINTS: "evicts pods for taints of their devices",
        DEVICE_POOL_STATUS: "answers requests for the status of pools of devices (resource.k8s.io/v1alpha3)",
        DEVICE_TAINT_RULES: "heeds the device taint rules of resource.k8s.io/v1beta2, and writes their status",
        DEVICE_ALTERNATIVES: "makes claims with alternatives of templates",
        TOLERATION_COMPARISON: "supports numeric comparison in tolerations, for taint eviction and daemon sets",
        EXPECTED_NODES: "says of pods that wait for volumes or devices to which node they come",
        ROUTES_BY_WATCHES: "compares the routes of the cloud when nodes change, instead of periodically",
    }
)
"""The effect of each gate that the manager or one of its controllers reads. Add a gate here when you read it."""

_OLDEST_STEP = 3  # maximum number of minor versions that an emulated version is older
_VERSION = re.compile(r"(?:(?P<component>[^=]*)=)?v?(?P<major>\d+)\.(?P<minor>\d+)(?:\.0)?", re.ASCII)


class ManagerFeatureOptions(features.FeatureOptions):
    """Features that are not on, or can be off."""

    effects: ClassVar[Mapping[str, str]] = READ

    feature_gates: StringMultimap = feature_gates(READ)
    emulated_version: StringList = flag(
        (),
        "version whose feature gates are offered, with their defaults and stages, as major.minor or kube=major.minor; "
        f"{API_VERSION} or at most {_OLDEST_STEP} minors older",
    )

    @field_validator("emulated_version")
    @classmethod
    def _is_version(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        _emulated(value)
        return value

    @property
    def version(self) -> Version:
        """The emulated version, by default our own."""
        return _emulated(self.emulated_version)


def _emulated(given: tuple[str, ...]) -> Version:
    if not given:
        return OURS
    major, minor = OURS
    found = _VERSION.fullmatch(given[0])
    if len(given) > 1 or found is None:
        raise ValueError(f"must be one version such as {API_VERSION} or kube={API_VERSION}")
    check_component(found["component"] or "")
    version = int(found["major"]), int(found["minor"])
    if not (major, minor - _OLDEST_STEP) <= version <= (major, minor):
        raise ValueError(f"must be from {major}.{minor - _OLDEST_STEP} to {API_VERSION}")
    return version
