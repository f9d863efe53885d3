"""Pod Security admission: the plugin PodSecurity, its policies, and the checks of the Pod Security Standards."""

from apiserver_stub.admission.plugins.pod_security.plugin import PodSecurity, pod_security
from apiserver_stub.admission.plugins.pod_security.policy import PodSecurityConfiguration

__all__ = ["PodSecurity", "PodSecurityConfiguration", "pod_security"]
