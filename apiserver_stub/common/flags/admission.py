"""Flags of admission: which plugins are enabled."""

from collections.abc import Set
from importlib.metadata import entry_points
from typing import ClassVar, Self

from pydantic import field_validator, model_validator

from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import StringList

ORDERED = (
    "AlwaysAdmit",
    "NamespaceAutoProvision",
    "NamespaceLifecycle",
    "NamespaceExists",
    "LimitPodHardAntiAffinityTopology",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "AlwaysPullImages",
    "ImagePolicyWebhook",
    "PodSecurity",
    "PodNodeSelector",
    "Priority",
    "DefaultTolerationSeconds",
    "PodTolerationRestriction",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PodGroupProtection",
    "OwnerReferencesPermissionEnforcement",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "ClusterTrustBundleAttest",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "DenyServiceExternalIPs",
    "PodTopologyLabels",
    "PodGroupWorkloadExists",
    "NodeDeclaredFeatureValidator",
    "JobValidation",
    "PodResizeValidator",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
    "AlwaysDeny",
)
"""The admission plugins of Kubernetes 1.36, in order of execution."""
ENTRY_POINTS = "apiserver_stub.admission"
"""The group of entry points by which packages add plugins."""
DEFAULT_ON = frozenset(
    {
        "NamespaceLifecycle", "LimitRanger", "ServiceAccount", "DefaultStorageClass", "PersistentVolumeClaimResize",
        "DefaultTolerationSeconds", "MutatingAdmissionWebhook", "ValidatingAdmissionWebhook", "ResourceQuota",
        "StorageObjectInUseProtection", "PodGroupProtection", "Priority", "TaintNodesByCondition", "RuntimeClass",
        "CertificateApproval", "CertificateSigning", "ClusterTrustBundleAttest", "CertificateSubjectRestriction",
        "DefaultIngressClass", "PodSecurity", "PodTopologyLabels", "MutatingAdmissionPolicy",
        "ValidatingAdmissionPolicy", "PodGroupWorkloadExists", "NodeDeclaredFeatureValidator", "JobValidation",
        "PodResizeValidator",
    }
)  # fmt: skip


class AdmissionOptions(Options):
    """Admission of write requests."""

    title: ClassVar[str] = "Admission"

    enable_admission_plugins: StringList = flag(
        (),
        "Admission plugins to enable in addition to the default ones, including those of installed packages. The "
        "order of plugins is fixed.",
    )
    disable_admission_plugins: StringList = flag(
        (), "Admission plugins to disable although they are enabled by default."
    )
    default_not_ready_toleration_seconds: int = flag(
        300, "Default tolerationSeconds of the not-ready:NoExecute toleration added to pods that do not have one."
    )
    default_unreachable_toleration_seconds: int = flag(
        300, "Default tolerationSeconds of the unreachable:NoExecute toleration added to pods that do not have one."
    )

    admission_control: StringList | None = flag(
        None,
        "The only admission plugins to enable. Deprecated: use --enable-admission-plugins and "
        "--disable-admission-plugins.",
    )
    admission_control_config_file: str = flag(
        "", "File with an AdmissionConfiguration: the configuration of each plugin."
    )

    @property
    def enabled(self) -> Set[str]:
        """The names of the enabled plugins."""
        if self.admission_control is not None:
            return frozenset(self.admission_control)
        return (DEFAULT_ON - set(self.disable_admission_plugins)) | set(self.enable_admission_plugins)

    @field_validator("enable_admission_plugins", "disable_admission_plugins", "admission_control")
    @classmethod
    def _are_known(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        unknown = [name for name in value or () if name not in ORDERED]
        if unknown:  # checked last, because loading entry points is slow
            installed = entry_points(group=ENTRY_POINTS).names
            unknown = [name for name in unknown if name not in installed]
        if unknown:
            raise ValueError(f"there is no admission plugin {unknown[0]!r}")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.admission_control is not None and (self.enable_admission_plugins or self.disable_admission_plugins):
            others = "--enable-admission-plugins and --disable-admission-plugins"
            raise ValueError(f"--admission-control names all plugins that are on: it goes without {others}")
        if both := set(self.enable_admission_plugins) & set(self.disable_admission_plugins):
            listed = ", ".join(sorted(both))
            raise ValueError(f"--enable-admission-plugins and --disable-admission-plugins both name {listed}")
        return self
