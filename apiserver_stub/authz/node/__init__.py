"""The authorizer of the mode Node: what the agents of nodes may do, by what runs on their node."""

from apiserver_stub.authz.node.authorizer import NodeAuthorizer

__all__ = ["NodeAuthorizer"]
