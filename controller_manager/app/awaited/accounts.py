"""Flags of the controllers that sign certificates and give out tokens, until there are such controllers."""

from collections.abc import Iterator
from typing import Any

from controller_manager.app.awaited._needs import needs
from controller_manager.options import Duration, Int32, Options, Parsed

_signing = needs("certificatesigningrequest-signing-controller")
_token = needs("serviceaccount-token-controller")
_publisher = needs("root-ca-certificate-publisher-controller")
_cleaner = needs("legacy-serviceaccount-token-cleaner-controller")


def _certificate(signer: str, alias: str = "") -> Any:
    aliases = (f"{alias}-cert-file",) if alias else ()
    return _signing("", f"file of the authority that signs {signer}", aliases=aliases, metavar="file")


def _key(signer: str, alias: str = "") -> Any:
    aliases = (f"{alias}-key-file",) if alias else ()
    return _signing("", f"file of the private key, RSA or ECDSA, that signs {signer}", aliases=aliases, metavar="file")


_EVERYTHING = "all certificates, in place of one for each signer"
_API_CLIENTS = "client certificates for the API server"
_NODE_CLIENTS = "client certificates of nodes"
_NODE_SERVERS = "serving certificates of nodes"
_LEGACY = "certificates whose signer is unknown"


class SigningOptions(Options):
    """Whose keys sign certificates."""

    title = "Certificate signing controller"

    cluster_signing_cert_file: str = _certificate(_EVERYTHING)
    cluster_signing_key_file: str = _key(_EVERYTHING)
    cluster_signing_apiserver_client_cert_file: str = _certificate(
        _API_CLIENTS, "cluster-signing-kube-apiserver-client"
    )
    cluster_signing_apiserver_client_key_file: str = _key(_API_CLIENTS, "cluster-signing-kube-apiserver-client")
    cluster_signing_node_agent_client_cert_file: str = _certificate(_NODE_CLIENTS, "cluster-signing-kubelet-client")
    cluster_signing_node_agent_client_key_file: str = _key(_NODE_CLIENTS, "cluster-signing-kubelet-client")
    cluster_signing_node_agent_serving_cert_file: str = _certificate(_NODE_SERVERS, "cluster-signing-kubelet-serving")
    cluster_signing_node_agent_serving_key_file: str = _key(_NODE_SERVERS, "cluster-signing-kubelet-serving")
    cluster_signing_legacy_unknown_cert_file: str = _certificate(_LEGACY)
    cluster_signing_legacy_unknown_key_file: str = _key(_LEGACY)
    cluster_signing_duration: Duration = _signing(
        "8760h", "how long a certificate lasts at most; a request may ask for less", minimum=1
    )


_SIGNERS = ("apiserver-client", "node-agent-client", "node-agent-serving", "legacy-unknown")


def one_authority_or_several(parsed: Parsed) -> Iterator[str]:
    """A certificate and its key go together; the authority for everything leaves none for a single signer."""
    files = parsed[SigningOptions].model_dump()
    given = {name.replace("_", "-") for name, value in files.items() if name.endswith("_file") and value}
    for prefix in ("cluster-signing", *(f"cluster-signing-{signer}" for signer in _SIGNERS)):
        pair = {f"{prefix}-cert-file", f"{prefix}-key-file"}
        if len(pair & given) == 1:
            yield f"--{prefix}-cert-file and --{prefix}-key-file must be given together"
    general = {"cluster-signing-cert-file", "cluster-signing-key-file"} & given
    for name in sorted(given - general) if general else ():
        yield f"--{name} cannot be given with --{min(general)}"


class TokenOptions(Options):
    """Tokens of service accounts that are kept in secrets, and the authority pods trust."""

    title = "Service account controllers"

    concurrent_serviceaccount_token_syncs: Int32 = _token(5, "token secrets worked on at the same time", minimum=1)
    service_account_private_key_file: str = _token(
        "", "file of the private key, RSA or ECDSA, that signs tokens kept in secrets", metavar="file"
    )
    root_ca_file: str = _publisher("", "file of the authorities that pods are told to trust", metavar="file")
    legacy_service_account_token_clean_up_period: Duration = _cleaner(
        "8760h", "how long a token kept in a secret must be unused before it may be deleted", minimum=1
    )


GROUPS = (SigningOptions, TokenOptions)
