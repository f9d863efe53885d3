"""Shared by the controllers of service accounts: flags, token secrets, and the root CAs published to pods."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from controller_manager.common.api.core import Secret
from controller_manager.common.api.resource import Key
from controller_manager.common.base.log import Logger
from controller_manager.framework import ConfigError, Int32, Options, flag

TYPE = "kubernetes.io/service-account-token"
"""The type of secrets that hold a service account token."""
OF_TYPE = f"type={TYPE}"
ACCOUNT_NAME, ACCOUNT_UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
CHECK_PERIOD = 10.0
"""Seconds between two checks of the root CA file."""


class ServiceAccountOptions(Options):
    """Flags of service accounts."""

    title: ClassVar[str] = "Service account controllers"

    concurrent_serviceaccount_token_syncs: Int32 = flag(5, "token secrets worked on at the same time", minimum=1)
    service_account_private_key_file: str = flag(
        "",
        "PEM file of the private key, RSA or ECDSA, that signs the tokens of service account secrets; without it these "
        "secrets get no tokens",
        metavar="file",
    )
    root_ca_file: str = flag(
        "",
        "PEM file of the certificate authorities that pods trust, reloaded when it changes; the default is "
        "those of the client configuration",
        metavar="file",
    )


def account_of(secret: Secret) -> Key | None:
    """Return the service account of a token secret, or None if it has no annotation."""
    name = (secret.metadata.annotations or {}).get(ACCOUNT_NAME)
    return Key(secret.metadata.namespace, name) if name else None


def uid_of(secret: Secret) -> str:
    """Return the uid of the service account in the annotation of a secret, or an empty string."""
    return (secret.metadata.annotations or {}).get(ACCOUNT_UID, "")


class RootCAs:
    """The root CAs: the content of the file, or the result of `default` without a file. Raises ConfigError."""

    def __init__(self, file: str, default: Callable[[], bytes], log: Logger) -> None:
        self._file = file
        self._default = default
        self._log = log
        self._problem = ""
        self.text = self._read()

    def changed(self) -> bool:
        """Read the file again and return whether the CAs have changed. An invalid file changes nothing."""
        try:
            text, problem = self._read(), ""
        except ConfigError as error:
            text, problem = self.text, str(error)
        if problem and problem != self._problem:
            self._log.error("failed to reload root CAs; the previous ones stay published", problem=problem)
        changed, self.text, self._problem = text != self.text, text, problem
        return changed

    def _read(self) -> str:
        return read_root_cas(self._file) if self._file else self._default().decode("utf-8", "replace")


def read_root_cas(file: str) -> str:
    """Return the content of --root-ca-file. Raises ConfigError unless it holds certificates."""
    from cryptography import x509  # imported late: neither --help nor a start without that file needs it

    try:
        content = Path(file).read_bytes()
        x509.load_pem_x509_certificates(content)
        return content.decode()
    except OSError as error:
        raise ConfigError(f"--root-ca-file: {file} can't be read: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"--root-ca-file: {file} holds no certificates in PEM") from None
