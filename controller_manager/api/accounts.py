"""Service accounts, and the tokens with which somebody acts as one (`authentication.k8s.io/v1`)."""

from controller_manager.api.model import Model, Object
from controller_manager.api.platform import GROUP_DOMAIN
from controller_manager.api.resource import Resource


class ServiceAccount(Object):
    """An identity for programs."""


class TokenRequestSpec(Model):
    """The requested validity in seconds; the server answers with what it grants, at most so much."""

    expiration_seconds: int = 0


class TokenRequestStatus(Model):
    """The granted token."""

    token: str = ""


class TokenRequest(Object):
    """A token of the account that the path names; sent to its subresource `token`."""

    spec: TokenRequestSpec = TokenRequestSpec()
    status: TokenRequestStatus = TokenRequestStatus()


SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, ServiceAccount)
TOKEN_VERSION = f"authentication.{GROUP_DOMAIN}/v1"
