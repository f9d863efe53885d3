"""The names of the existing ecosystem (domains, groups, labels), so that every existing client works."""

GROUP_DOMAIN = "k8s.io"
PLATFORM_DOMAIN = "kubernetes.io"
VENDOR = "kubernetes"
SYSTEM_NAMESPACE = "kube-system"
DEFAULT_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
API_VERSION = "1.36"
MANAGER_NAME = "kube-controller-manager"
MANAGER_USER = f"system:{MANAGER_NAME}"
ADMIN_GROUP = "system:masters"
NODES_GROUP = "system:nodes"
NODE_PREFIX = "system:node:"
