"""Config maps, secrets, and service accounts with their tokens."""

from collections.abc import Mapping

from controller_manager.common.api.core.events import ObjectReference
from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.resource import Resource


class ConfigMap(Object):
    """Texts by name, for pods and programs. Binary data is not modelled and stays in `raw`."""

    data: Mapping[str, str] = {}


class Secret(Object):
    """A secret; values are bytes (base64 on the wire)."""

    type: str = ""
    data: Mapping[str, bytes] = {}


CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, ConfigMap)
SECRETS = Resource("", "v1", "secrets", "Secret", True, Secret)


class ServiceAccount(Object):
    """An identity for programs."""

    secrets: tuple[ObjectReference, ...] = ()


class TokenRequestSpec(Model):
    """The requested validity in seconds; the server may grant less."""

    expiration_seconds: int = 0


class TokenRequestStatus(Model):
    """The granted token."""

    token: str = ""


class TokenRequest(Object):
    """A request for a token of the service account in the path; sent to the subresource `token`."""

    spec: TokenRequestSpec = TokenRequestSpec()
    status: TokenRequestStatus = TokenRequestStatus()


SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, ServiceAccount)
TOKEN_VERSION = f"authentication.{GROUP_DOMAIN}/v1"
