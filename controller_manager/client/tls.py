"""The TLS settings of a client connection: whom to trust, and which certificate to show."""

import ssl

from controller_manager.base.memory_file import memory_file
from controller_manager.client.config import ClientConfig, ConfigError


def client_context(config: ClientConfig, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """A context that trusts the authorities of `config` and shows `certificate` (PEM, with its key) if there is one."""
    try:
        # What is not ASCII can only be a comment, over which `ssl` would stumble.
        context = ssl.create_default_context(cadata=config.ca.decode("ascii", "ignore") if config.ca else None)
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
    try:
        with memory_file(certificate + b"\n" + key) as pair:
            context.load_cert_chain(pair, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError("client-certificate and client-key are no matching, unencrypted PEM pair") from error
