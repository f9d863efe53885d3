"""The TLS settings of a client connection: whom to trust, and which certificate to show."""

import ssl
import tempfile
from pathlib import Path

from controller_manager.client.config import ClientConfig, ConfigError


def client_context(config: ClientConfig, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """A context that trusts the authorities of `config` and shows `certificate` (PEM, with its key) if there is one."""
    try:
        context = ssl.create_default_context(cadata=config.ca.decode("ascii") if config.ca else None)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"certificate-authority of {config.server} holds no usable PEM certificate") from error
    # Newer Pythons ask for extensions that the authorities of many clusters lack.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        _show(context, certificate, key)
    return context


def _show(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """OpenSSL reads a key pair from files only, so it passes through a directory nobody else can enter."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder, "pair.pem")
        pair.touch(mode=0o600)
        pair.write_bytes(certificate + b"\n" + key)
        try:
            context.load_cert_chain(pair, password=lambda: "")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigError("client-certificate and client-key are no matching, unencrypted PEM pair") from error
