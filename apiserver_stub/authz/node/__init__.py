"""The authorizer of the mode Node: permissions of kubelets, based on the pods of their node."""

from apiserver_stub.authz.node.authorizer import NodeAuthorizer

__all__ = ["NodeAuthorizer"]
