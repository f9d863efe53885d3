"""Certificate signing requests and trust bundles of the group `certificates.k8s.io`."""

from collections.abc import Mapping

from controller_manager.common.api.conditions import condition_of
from controller_manager.common.api.model import Model, Object, PartialObject
from controller_manager.common.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.common.api.resource import Resource

GROUP = f"certificates.{GROUP_DOMAIN}"

# Signers that every cluster has.
API_CLIENT = f"{PLATFORM_DOMAIN}/kube-apiserver-client"
NODE_CLIENT = f"{PLATFORM_DOMAIN}/kube-apiserver-client-kubelet"
NODE_SERVING = f"{PLATFORM_DOMAIN}/kubelet-serving"
LEGACY_UNKNOWN = f"{PLATFORM_DOMAIN}/legacy-unknown"

# Condition types.
APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"


class RequestCondition(Model):
    """`status.conditions[]`, complete."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_update_time: str | None = None
    last_transition_time: str | None = None


class RequestSpec(Model):
    """A certificate request (PEM) and its requester."""

    request: bytes = b""
    signer_name: str = ""
    expiration_seconds: int | None = None
    usages: tuple[str, ...] = ()
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class RequestStatus(Model):
    """Approval or denial, and the certificate in PEM."""

    conditions: tuple[RequestCondition, ...] = ()
    certificate: bytes = b""


class CertificateSigningRequest(Object):
    """A request to a signer for a certificate (`certificates.k8s.io/v1`)."""

    spec: RequestSpec = RequestSpec()
    status: RequestStatus = RequestStatus()

    def condition(self, kind: str) -> RequestCondition | None:
        """Return the condition of a type, which is then true: conditions of a request cannot be false."""
        return condition_of(self.status.conditions, kind)


REQUESTS = Resource(
    GROUP, "v1", "certificatesigningrequests", "CertificateSigningRequest", False, CertificateSigningRequest
)


class ClusterTrustBundleSpec(Model):
    """Trust anchors (PEM), optionally of a named signer."""

    signer_name: str = ""
    trust_bundle: str = ""


class ClusterTrustBundle(Object):
    """Trust anchors for all users of the cluster."""

    spec: ClusterTrustBundleSpec = ClusterTrustBundleSpec()


TRUST_BUNDLES = Resource(GROUP, "v1beta1", "clustertrustbundles", "ClusterTrustBundle", False, ClusterTrustBundle)


POD_REQUESTS = Resource(GROUP, "v1beta1", "podcertificaterequests", "PodCertificateRequest", True, PartialObject)
"""Certificate requests of pods; controllers read only their metadata."""
