"""The credentials that admission webhooks are shown: users of the kubeconfig file that WebhookAdmissionConfiguration
names, chosen by the names of webhooks (Dynamic Admission Control, Authenticate API servers).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.common.config_file import ConfigDocument
from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.webhooks.client import Identify
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.transport.config import ClientIdentity
from controller_manager.common.transport.kubeconfig import identities

T = TypeVar("T")
_HTTPS = ":443"


class WebhookAdmissionConfiguration(ConfigDocument):
    """The document that configures each of the two plugins."""

    kind: str = "WebhookAdmissionConfiguration"
    kube_config_file: str = ""
    static_manifests_dir: str = ""


CONFIGURATION_TYPES = {f"apiserver.config.{GROUP_DOMAIN}/v1": WebhookAdmissionConfiguration}


def check(configuration: WebhookAdmissionConfiguration) -> ErrorList:
    """Return the validation errors of a configuration."""
    errors = ErrorList()
    at: FieldPath = (None, "kubeConfigFile")
    if configuration.kube_config_file and not Path(configuration.kube_config_file).is_absolute():
        errors.invalid(at, configuration.kube_config_file, "must be an absolute file path")
    if configuration.static_manifests_dir:
        errors.forbidden(
            (None, "staticManifestsDir"), "ManifestBasedAdmissionControlConfig feature gate is not enabled"
        )
    return errors


def credentials_of(parts: AdmissionParts, plugin: str) -> Identify | None:
    """Return the function that finds the client identity for a webhook by host and port; None without a file. Raises
    `ConfigFileError`, and `ConfigError` for an unusable kubeconfig file.
    """
    found = parts.configuration.document(plugin, CONFIGURATION_TYPES, check)
    if found is None or not found.kube_config_file:
        return None
    users, current = identities(Path(found.kube_config_file))
    if plugins := [name for name, user in users.items() if user.plugin is not None]:
        raise ValueError(f"{found.kube_config_file}: users[{plugins[0]}].user.exec is not supported for webhooks")

    def identify(host: str, port: int) -> ClientIdentity | None:
        return identity_for(f"{host}:{port}", users, current)

    return identify


def identity_for(target: str, users: Mapping[str, T], current: str) -> T | None:
    """Return the user for a webhook by host and port: the one of that name, or with `*` for its first labels, the same
    without port 443, the user `*`, or that of the current context.
    """
    return next((users[name] for name in (*_names(target), "*", current) if name in users), None)


def _names(target: str) -> Iterator[str]:
    for name in (target, target.removesuffix(_HTTPS)) if target.endswith(_HTTPS) else (target,):
        labels = name.split(".")
        yield name
        yield from (f"*.{'.'.join(labels[index:])}" for index in range(1, len(labels)))
