"""RBAC: roles and bindings, kept from the changes that the watch cache tells, and what they allow."""

from apiserver_stub.authz.rbac.authorizer import RBACAuthorizer
from apiserver_stub.authz.rbac.bindings import Bindings
from apiserver_stub.authz.rbac.rules import RoleRules

__all__ = ["Bindings", "RBACAuthorizer", "RoleRules"]
