"""Transformers between objects and their encrypted bytes: a prefix that names the cipher, then the ciphertext. Pure.

| provider  | prefix                     | what follows                                   | context is authenticated |
|-----------|----------------------------|------------------------------------------------|--------------------------|
| aescbc    | `k8s:enc:aescbc:v1:KEY:`   | initialization vector (16 bytes), PKCS #7      | no                       |
| aesgcm    | `k8s:enc:aesgcm:v1:KEY:`   | nonce (12 bytes), tag at the end               | yes                      |
| secretbox | `k8s:enc:secretbox:v1:KEY:`| nonce (24 bytes), XSalsa20 and Poly1305        | no                       |
| kms v2    | `k8s:enc:kms:v2:NAME:`     | an `EncryptedObject`, see `kms.py`             | yes                      |
| identity  | none                       | the object                                     |                          |
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from apiserver_stub.storage.encryption.config import EncryptionKey
from apiserver_stub.storage.interface import ENCRYPTED
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.base.random import random_source

_BLOCK = 16
_GCM_NONCE = 12
_SECRETBOX_NONCE = 24
_SHORTEST_TAG = 16


class TransformError(Exception):
    """Encryption or decryption failed. The message contains no data. `code` is that of a failed gRPC call."""

    def __init__(self, message: str, code: str = "unknown-non-grpc") -> None:
        super().__init__(message)
        self.code = code


class KeyNeeded(Exception):
    """Decryption needs a key; call `obtain` first. It raises `TransformError`."""

    def __init__(self, obtain: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.obtain = obtain


class Decrypted(NamedTuple):
    """An object, and whether it would be stored differently if it were written now."""

    data: bytes
    stale: bool


class Transformer(Protocol):
    """Encrypts and decrypts. `context` is the location of the object, so that encrypted bytes cannot be moved to
    another object.
    """

    prefix: bytes

    def encrypt(self, data: bytes, context: bytes) -> bytes:
        """Return the bytes after the prefix. Raises `TransformError`."""

    def decrypt(self, data: bytes, context: bytes) -> Decrypted:
        """Return the object from the bytes after the prefix. Raises `TransformError` and `KeyNeeded`."""


class AESGCM:
    """AES in Galois/Counter Mode, with a random nonce for each object (NIST SP 800-38D)."""

    def __init__(self, key: bytes, prefix: bytes = b"") -> None:
        from cryptography.hazmat.primitives.ciphers import aead

        self.prefix = prefix
        self._cipher = aead.AESGCM(key)

    def encrypt(self, data: bytes, context: bytes) -> bytes:
        """See `Transformer`."""
        nonce = random_source().bytes(_GCM_NONCE)
        return nonce + self._cipher.encrypt(nonce, data, context)

    def decrypt(self, data: bytes, context: bytes) -> Decrypted:
        """See `Transformer`."""
        from cryptography.exceptions import InvalidTag

        if len(data) < _GCM_NONCE + _SHORTEST_TAG:
            raise TransformError("the stored data is too short")
        try:
            return Decrypted(self._cipher.decrypt(data[:_GCM_NONCE], data[_GCM_NONCE:], context), stale=False)
        except InvalidTag:
            raise TransformError("the stored data was not encrypted with this key, or has changed since") from None


class AESCBC:
    """AES in Cipher Block Chaining mode. It does not detect changed bytes; aesgcm and secretbox do."""

    def __init__(self, key: bytes, prefix: bytes = b"") -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self.prefix = prefix

        def cipher(vector: bytes) -> Cipher[modes.CBC]:
            return Cipher(algorithms.AES(key), modes.CBC(vector))

        self._cipher = cipher

    def encrypt(self, data: bytes, context: bytes) -> bytes:
        """See `Transformer`."""
        vector = random_source().bytes(_BLOCK)
        missing = _BLOCK - len(data) % _BLOCK
        encryptor = self._cipher(vector).encryptor()
        return vector + encryptor.update(data + bytes([missing]) * missing) + encryptor.finalize()

    def decrypt(self, data: bytes, context: bytes) -> Decrypted:
        """See `Transformer`."""
        if len(data) < 2 * _BLOCK or len(data) % _BLOCK:
            raise TransformError("the stored data is too short, or no whole number of blocks")
        decryptor = self._cipher(data[:_BLOCK]).decryptor()
        padded = decryptor.update(data[_BLOCK:]) + decryptor.finalize()
        added = padded[-1]
        if not 0 < added <= _BLOCK or padded[-added:] != bytes([added]) * added:
            raise TransformError("the stored data was not encrypted with this key, or has changed since")
        return Decrypted(padded[:-added], stale=False)


class Secretbox:
    """XSalsa20 and Poly1305 with a random nonce for each object (NaCl), by the package PyNaCl."""

    def __init__(self, key: bytes, prefix: bytes = b"") -> None:
        try:
            from nacl.exceptions import CryptoError
            from nacl.secret import SecretBox
        except ImportError:
            needed = "the provider secretbox needs the package PyNaCl; the extra `secretbox` of this package brings it"
            raise CannotStart(needed) from None
        self.prefix = prefix
        self._box, self._error = SecretBox(key), CryptoError

    def encrypt(self, data: bytes, context: bytes) -> bytes:
        """See `Transformer`."""
        return bytes(self._box.encrypt(data, random_source().bytes(_SECRETBOX_NONCE)))

    def decrypt(self, data: bytes, context: bytes) -> Decrypted:
        """See `Transformer`."""
        try:
            return Decrypted(self._box.decrypt(data), stale=False)
        except (self._error, ValueError):
            raise TransformError("the stored data was not encrypted with this key, or has changed since") from None


class IdentityTransformer:
    """Does not encrypt, and rejects encrypted bytes."""

    prefix = b""

    def encrypt(self, data: bytes, context: bytes) -> bytes:
        """See `Transformer`."""
        return data

    def decrypt(self, data: bytes, context: bytes) -> Decrypted:
        """See `Transformer`."""
        if data.startswith(ENCRYPTED):
            raise TransformError("the stored data is encrypted, and there is no provider that can read it")
        return Decrypted(data, stale=False)


class Transformers:
    """Several transformers as one: the first encrypts; an object decrypted by another one is stale.

    Several transformers may have the same prefix, as during key rotation; each is tried.
    """

    def __init__(self, transformers: Sequence[Transformer], prefix: bytes = b"") -> None:
        self.prefix = prefix
        self._transformers = tuple(transformers)

    def encrypt(self, data: bytes, context: bytes) -> bytes:
        """See `Transformer`."""
        first = self._transformers[0]
        return first.prefix + first.encrypt(data, context)

    def decrypt(self, data: bytes, context: bytes) -> Decrypted:
        """See `Transformer`."""
        refusal = TransformError("no provider or key has the name that stands in front of the stored data")
        for at, transformer in enumerate(self._transformers):
            if not data.startswith(transformer.prefix):
                continue
            try:
                found, stale = transformer.decrypt(data.removeprefix(transformer.prefix), context)
            except TransformError as error:
                if transformer.prefix:
                    refusal = error
                continue
            return Decrypted(found, stale or at > 0)
        raise refusal


def keyed(make: Callable[[bytes, bytes], Transformer], keys: Sequence[EncryptionKey], prefix: bytes) -> Transformers:
    """Return the transformer of a provider with several keys; `make` creates one for each key."""
    return Transformers([make(key.data, f"{key.name}:".encode()) for key in keys], prefix)
