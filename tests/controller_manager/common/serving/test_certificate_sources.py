"""Self-signed certificates: reuse and renewal; foreign certificates stay unchanged."""

import asyncio
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from controller_manager.common.base.clock import utc_now
from controller_manager.common.serving import tls
from controller_manager.common.serving.certificates import FilePair, SelfSigned
from controller_manager.testing.virtual import VirtualLoop

HOSTS = ("localhost", "127.0.0.1")


def made(folder: Path | None, *hosts: str) -> tls.KeyPair:
    return SelfSigned("manager", hosts or HOSTS, folder).read()


def test_valid_pair_is_reused(tmp_path):
    first = made(tmp_path)
    assert stat.S_IMODE((tmp_path / "manager.key").stat().st_mode) == 0o600
    assert (tmp_path / "manager.crt").read_bytes() == first.certificate
    assert made(tmp_path, "127.0.0.1") == first
    assert made(tmp_path, "other.example") != first
    tls.context_of(first)


@pytest.mark.parametrize("damage", ["garbage", "foreign key", "expiring", "missing"])
def test_unusable_own_pair_is_replaced(tmp_path, damage):
    before = made(tmp_path)
    cert_file, key_file = tmp_path / "manager.crt", tmp_path / "manager.key"
    soon = tls.issue(tls.make_ca("manager-ca"), "manager", hosts=HOSTS, days=3)
    match damage:
        case "garbage":
            cert_file.write_bytes(b"garbage")
        case "foreign key":
            key_file.write_bytes(soon.key)
        case "expiring":
            soon.write(cert_file, key_file)
        case _:
            key_file.unlink()
    after = made(tmp_path)
    assert after not in (before, soon)
    assert FilePair(cert_file, key_file).read() == after


@pytest.mark.parametrize("kind", ["expiring", "RSA"])
def test_foreign_pair_is_used_unchanged(tmp_path, kind):
    theirs = tls.issue(tls.make_ca("their-ca"), "them", hosts=("them.example",), days=3)
    if kind == "RSA":
        theirs = rsa_pair()
    theirs.write(tmp_path / "manager.crt", tmp_path / "manager.key")
    assert made(tmp_path) == theirs
    assert FilePair(tmp_path / "manager.crt", tmp_path / "manager.key").read() == theirs


@pytest.mark.virtual
async def test_self_signed_pair_is_renewed_before_expiry(tmp_path):
    source, kept = SelfSigned("manager", HOSTS), SelfSigned("manager", HOSTS, tmp_path)
    first, first_kept = source.read(), kept.read()
    assert (source.read(), kept.read()) == (first, first_kept)

    await asyncio.sleep(timedelta(days=359).total_seconds())
    for one, before in ((source, first), (kept, first_kept)):
        after = x509.load_pem_x509_certificate(one.read().certificate)
        assert after != x509.load_pem_x509_certificate(before.certificate)
        assert after.not_valid_after_utc - utc_now() > timedelta(days=300)


@pytest.mark.virtual
async def test_pair_from_the_future_is_replaced(tmp_path: Path) -> None:
    """This happens after the clock was set back."""
    source, kept = SelfSigned("manager", HOSTS), SelfSigned("manager", HOSTS, tmp_path)
    first = source.read(), kept.read()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.jump(-timedelta(days=2).total_seconds())
    for pair in (source.read(), kept.read()):
        assert pair not in first
        assert x509.load_pem_x509_certificate(pair.certificate).not_valid_before_utc <= utc_now()


def test_repr_of_pair_hides_the_key():
    pair = made(None)
    assert "PRIVATE" not in repr(pair)
    assert b"PRIVATE KEY" in pair.key


def rsa_pair() -> tls.KeyPair:
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "theirs")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, utc_now(), utc_now() + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("theirs")]), critical=False)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return tls.KeyPair(certificate, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
