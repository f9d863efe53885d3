"""Subresources served by kubelets, pods and services: logs, exec, attach, port forwarding and proxies."""

from apiserver_stub.apis.kubelet.subresources import KubeletParts, KubeletSubresources

__all__ = ["KubeletParts", "KubeletSubresources"]
