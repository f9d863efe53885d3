"""Keys of service account tokens: accepted formats, key ids, and the server's own key."""

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from apiserver_stub.authn.keys import own_key
from controller_manager.common.serving.token_keys import VerifyingKey, read_signing_key, read_verifying_keys

FLAG = "--service-account-key-file"
RSA = rsa.generate_private_key(65537, 2048)
P256 = ec.generate_private_key(ec.SECP256R1())


def private_pem(key: Any, password: bytes = b"", *, traditional: bool = False) -> bytes:
    form = serialization.PrivateFormat.TraditionalOpenSSL if traditional else serialization.PrivateFormat.PKCS8
    lock = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    data: bytes = key.private_bytes(serialization.Encoding.PEM, form, lock)
    return data


def public_pem(key: Any) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    data: bytes = key.public_key().public_bytes(serialization.Encoding.PEM, form)
    return data


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.pem"


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (RSA, "RS256"),
        (P256, "ES256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (ec.generate_private_key(ec.SECP521R1()), "ES512"),
    ],
)
@pytest.mark.parametrize("traditional", [False, True])
def test_key_type_decides_algorithm(file: Path, key: Any, algorithm: str, traditional: bool) -> None:
    file.write_bytes(private_pem(key, traditional=traditional))
    assert read_signing_key(file, FLAG).verifying.algorithm == algorithm


def test_private_and_public_key_have_the_same_id(file: Path) -> None:
    file.write_bytes(b"a comment\n" + public_pem(P256) + private_pem(RSA) + public_pem(RSA))
    elliptic, first, second = read_verifying_keys(file, FLAG)
    assert first.name == second.name == VerifyingKey.of(RSA.public_key()).name != elliptic.name
    assert read_signing_key(file, FLAG).verifying.name == first.name


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no key in PEM form"),
        (b"nonsense", "holds no key in PEM form"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "cannot be read"),
        (private_pem(P256, b"secret"), "cannot be read"),
        (private_pem(ed25519.Ed25519PrivateKey.generate()), "neither RSA nor ECDSA"),
        (private_pem(ec.generate_private_key(ec.SECP256K1())), "neither RSA nor ECDSA"),
        (private_pem(rsa.generate_private_key(65537, 1024)), "of 1024 bits"),
    ],
    ids=["empty", "nonsense", "garbage", "encrypted", "kind", "curve", "small"],
)
def test_unusable_key_file_is_reported(file: Path, content: bytes, why: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ValueError, match=why) as refusal:
        read_verifying_keys(file, FLAG)
    assert str(refusal.value).startswith(f"{FLAG}: {file} ")


def test_public_key_cannot_sign(file: Path) -> None:
    file.write_bytes(public_pem(RSA))
    with pytest.raises(ValueError, match="no private key"):
        read_signing_key(file, FLAG)


def test_own_key_is_created_once_and_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    made = own_key(folder)
    assert own_key(folder).verifying.name == made.verifying.name
    assert (folder / "sa.key").stat().st_mode & 0o777 == 0o600
    assert [key.name for key in read_verifying_keys(folder / "sa.pub", FLAG)] == [made.verifying.name]


def test_key_without_a_folder_is_not_stored() -> None:
    assert own_key(None).verifying.name != own_key(None).verifying.name


def test_repr_hides_private_key() -> None:
    key = own_key(None)
    assert "private" not in repr(key)
