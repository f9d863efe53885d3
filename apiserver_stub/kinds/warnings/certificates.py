"""Warnings of secrets whose certificate and key can't be used together."""

from binascii import Error as Base64Error
from binascii import a2b_base64
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from apiserver_stub.kinds.error_list import place
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.warnings.told import tell

_TLS = "kubernetes.io/tls"
_CERTIFICATE, _KEY = "tls.crt", "tls.key"
_LARGEST = 64 * 1024  # bytes of a chain or a key that are looked at


def of_secret(secret: Tree, old: Tree | None) -> list[str]:
    """Warn of a pair for TLS that no server could be started with."""
    if secret.get("type") != _TLS or (old is not None and old.get("data") == secret.get("data")):
        return []
    data = secret.get("data") or {}
    why = _mismatch(data.get(_CERTIFICATE, ""), data.get(_KEY, ""))
    return [tell(place("data"), why)] if why else []


def _mismatch(certificate: str, key: str) -> str:
    if max(len(certificate), len(key)) > _LARGEST:
        return ""
    try:
        ours = load_pem_x509_certificate(a2b_base64(certificate)).public_key()
    except (ValueError, Base64Error, UnsupportedAlgorithm):
        return f"{_CERTIFICATE} has no certificate in PEM"
    try:
        # What is asked is only whether they belong together; to prove the numbers of the key takes many milliseconds.
        private = load_pem_private_key(a2b_base64(key), None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, Base64Error, UnsupportedAlgorithm):
        return f"{_KEY} has no private key in PEM"
    return "" if _bytes(private.public_key()) == _bytes(ours) else f"{_KEY} is not the key of {_CERTIFICATE}"


def _bytes(key: Any) -> bytes:
    found: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return found
