"""Ciphers: data of kube-apiserver 1.36 is decrypted, keys rotate, and changed or moved data is rejected."""

import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.storage.encryption.config import EncryptionKey
from apiserver_stub.storage.encryption.transformers import (
    AESCBC,
    AESGCM,
    IdentityTransformer,
    Secretbox,
    Transformer,
    TransformError,
    Transformers,
    keyed,
)

LONG, SHORT = bytes(range(32)), bytes(range(16))
STORED = {
    row["context"]: b64decode(row["stored"])
    for row in json.loads((Path(__file__).parent / "data" / "stored.json").read_text())
}
CIPHERS = {"aesgcm": AESGCM, "aescbc": AESCBC, "secretbox": Secretbox}
DATA = b'{"kind":"Secret"}'
AT = b"/registry/secrets/default/a"


@pytest.mark.parametrize(
    ("context", "make", "key", "name"),
    [
        ("/registry/secrets/vault/s1", AESGCM, LONG, b"k8s:enc:aesgcm:v1:one:"),
        ("/registry/configmaps/vault/c1", AESCBC, SHORT, b"k8s:enc:aescbc:v1:two:"),
        ("/registry/services/endpoints/vault/e1", Secretbox, LONG, b"k8s:enc:secretbox:v1:three:"),
    ],
)
def test_kube_apiserver_data_is_decrypted(
    context: str, make: Callable[[bytes, bytes], Transformer], key: bytes, name: bytes
) -> None:
    found = Transformers([make(key, name)]).decrypt(STORED[context], context.encode())
    assert not found.stale
    assert found.data.startswith(b"k8s\0")
    assert context.rpartition("/")[2].encode() in found.data


@pytest.mark.parametrize("name", CIPHERS)
@settings(max_examples=30)
@given(data=st.binary(max_size=200), at=st.integers(0, 400), flip=st.integers(1, 255))
def test_round_trip_works_and_changed_bytes_are_detected(name: str, data: bytes, at: int, flip: int) -> None:
    cipher = CIPHERS[name](LONG)
    stored = cipher.encrypt(data, AT)
    assert cipher.decrypt(stored, AT) == (data, False)
    assert cipher.encrypt(data, AT) != stored
    broken = bytearray(stored)
    broken[at % len(broken)] ^= flip
    try:
        found = cipher.decrypt(bytes(broken), AT).data
    except TransformError:
        return
    assert name == "aescbc"  # it does not authenticate the data
    assert found != data


@pytest.mark.parametrize("name", CIPHERS)
@pytest.mark.parametrize("size", [0, 1, 12, 16, 24, 31, 32, 33])
def test_too_short_data_is_rejected(name: str, size: int) -> None:
    with pytest.raises(TransformError):
        CIPHERS[name](LONG).decrypt(bytes(size), AT)


def test_data_of_another_object_is_rejected() -> None:
    cipher = AESGCM(LONG)
    with pytest.raises(TransformError, match="has changed"):
        cipher.decrypt(cipher.encrypt(DATA, AT), b"/registry/secrets/default/b")


def rotated(*names: str) -> Transformers:
    secrets = {"old": "AAECAwQFBgcICQoLDA0ODw==", "new": "Dw4NDAsKCQgHBgUEAwIBAA=="}
    keys = [EncryptionKey(name=name, secret=secrets[name]) for name in names]
    return Transformers([keyed(AESGCM, keys, b"k8s:enc:aesgcm:v1:"), IdentityTransformer()])


def test_first_key_encrypts_and_data_of_others_is_stale() -> None:
    stored = rotated("old").encrypt(DATA, AT)
    assert stored.startswith(b"k8s:enc:aesgcm:v1:old:")
    assert rotated("old").decrypt(stored, AT) == (DATA, False)
    assert rotated("new", "old").decrypt(stored, AT) == (DATA, True)
    assert rotated("old", "new").decrypt(stored, AT) == (DATA, False)
    assert rotated("new", "old").decrypt(DATA, AT) == (DATA, True)  # plain, as before encryption
    with pytest.raises(TransformError, match="no provider or key"):
        rotated("new").decrypt(stored, AT)


def provider(secret: str) -> Transformers:
    return keyed(AESGCM, [EncryptionKey(name="k", secret=secret)], b"k8s:enc:aesgcm:v1:")


def test_two_providers_of_one_type_are_both_tried() -> None:
    one, other = provider("AAAAAAAAAAAAAAAAAAAAAA=="), provider("Dw4NDAsKCQgHBgUEAwIBAA==")
    stored = Transformers([other]).encrypt(DATA, AT)
    assert Transformers([one, other]).decrypt(stored, AT) == (DATA, True)


def test_identity_writes_plain_text_and_reads_no_other() -> None:
    plain = Transformers([IdentityTransformer(), provider("AAAAAAAAAAAAAAAAAAAAAA==")])
    assert plain.encrypt(DATA, AT) == DATA
    with pytest.raises(TransformError, match="no provider"):
        Transformers([IdentityTransformer()]).decrypt(rotated("old").encrypt(DATA, AT), AT)
