"""Plain functions that look at every write before it happens and may refuse or change it."""

from apiserver_stub.admission.certificates import CertificateRequests, restrict_subjects
from apiserver_stub.admission.chain import Admission, AdmissionRequest, Step
from apiserver_stub.admission.namespaces import NamespaceLifecycle
from apiserver_stub.admission.services import ServiceAddresses
from apiserver_stub.admission.tolerations import tolerate_illness

__all__ = [
    "Admission",
    "AdmissionRequest",
    "CertificateRequests",
    "NamespaceLifecycle",
    "ServiceAddresses",
    "Step",
    "restrict_subjects",
    "tolerate_illness",
]
