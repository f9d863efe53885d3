"""RBAC: roles and bindings, kept up to date from the watch cache, and their permissions."""

from apiserver_stub.authz.rbac.authorizer import RBACAuthorizer
from apiserver_stub.authz.rbac.bindings import Bindings
from apiserver_stub.authz.rbac.rules import RoleRules

__all__ = ["Bindings", "RBACAuthorizer", "RoleRules"]
