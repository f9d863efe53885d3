"""Subresources that kubelets answer, and pods and services themselves: logs, commands, forwarded ports, proxies."""

from apiserver_stub.apis.kubelet.subresources import KubeletParts, KubeletSubresources

__all__ = ["KubeletParts", "KubeletSubresources"]
