"""Plain functions that look at every write before it happens and may refuse or change it."""

from apiserver_stub.admission.certificates import CertificateRequests, certificate_subject_restriction
from apiserver_stub.admission.chain import Admission, AdmissionRequest, Step
from apiserver_stub.admission.namespaces import NamespaceLifecycle
from apiserver_stub.admission.services import ServiceAddresses
from apiserver_stub.admission.tolerations import default_toleration_seconds

__all__ = [
    "Admission",
    "AdmissionRequest",
    "CertificateRequests",
    "NamespaceLifecycle",
    "ServiceAddresses",
    "Step",
    "certificate_subject_restriction",
    "default_toleration_seconds",
]
