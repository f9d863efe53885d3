"""The HTTPS server of a process, configured by flags; not imported for --help and --version."""

import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from controller_manager.common.api.wire import Request, Response
from controller_manager.common.base.log import get_logger
from controller_manager.common.component.secure_serving import (
    FILE_FLAGS,
    USUAL_VERSION,
    VERSIONS,
    SecureServingOptions,
    choose_suites,
)
from controller_manager.common.serving.certificates import Contexts, FilePair, Named, PairSource, SelfSigned
from controller_manager.common.serving.http_server import HTTPServer, ServerLimits
from controller_manager.common.serving.listening import ALL_INTERFACES
from controller_manager.common.serving.tls import TLSPolicy, available_ciphers
from controller_manager.common.serving.trust import Trust


def secure_server(
    handle: Callable[[Request], Awaitable[Response]],
    serving: SecureServingOptions,
    trust: Trust,
    own: Callable[[], PairSource],
    limits: ServerLimits,
    listener: socket.socket | None = None,
) -> HTTPServer:
    """Return a server with the certificates of the flags, or with the pair from `own` if --tls-cert-file is not given.
    Client certificates are verified with the CAs of `trust`, which may change. Raises CannotStart naming the flags
    whose files are unusable. A given `listener` may be shared with other processes.
    """
    if serving.http2_max_streams_per_connection and not serving.disable_http2_serving:
        get_logger("serving").warning(
            "--http2-max-streams-per-connection has no effect: this server speaks HTTP/1.1 only"
        )
    return HTTPServer(
        handle,
        serving.bind_address,
        serving.secure_port or 0,
        _contexts(serving, trust, own),
        limits=limits,
        share_port=serving.permit_port_sharing,
        listener=listener,
    )


def self_signed(serving: SecureServingOptions, name: str) -> PairSource:
    """Return a self-signed pair for a process without a certificate; it is stored in --cert-dir if given."""
    folder = Path(serving.cert_dir) if serving.cert_dir else None
    return SelfSigned(name, _hosts(serving.bind_address), folder, "--cert-dir")


def _contexts(serving: SecureServingOptions, trust: Trust, own: Callable[[], PairSource]) -> Contexts:
    given = Path(serving.tls_cert_file), Path(serving.tls_private_key_file)
    default = FilePair(*given, FILE_FLAGS) if serving.tls_cert_file else own()
    named = [
        Named(FilePair(Path(one.cert_file), Path(one.key_file), "--tls-sni-cert-key"), one.patterns)
        for one in serving.tls_sni_cert_key
    ]
    contexts = Contexts(default, named, lambda: trust.authorities, _policy(serving))
    trust.subscribe(contexts.renew)
    return contexts


def _policy(serving: SecureServingOptions) -> TLSPolicy:
    minimum, log = VERSIONS[serving.tls_min_version or USUAL_VERSION], get_logger("serving")
    if minimum < VERSIONS[USUAL_VERSION]:
        log.warning("--tls-min-version allows insecure versions of TLS", oldest=serving.tls_min_version)
    if not serving.tls_cipher_suites:
        return TLSPolicy(minimum)
    choice = choose_suites(serving.tls_cipher_suites, available_ciphers())
    if choice.insecure:
        log.warning("--tls-cipher-suites contains insecure suites", suites=choice.insecure)
    if choice.missing:
        log.warning("--tls-cipher-suites contains suites that OpenSSL does not support", suites=choice.missing)
    return TLSPolicy(minimum if choice.ciphers else ssl.TLSVersion.TLSv1_3, choice.ciphers)


def _hosts(bind_address: str) -> list[str]:
    own = [] if bind_address in ALL_INTERFACES else [bind_address.partition("%")[0]]  # without the IPv6 zone
    return list(dict.fromkeys(["localhost", "127.0.0.1", "::1", socket.gethostname(), *own]))
