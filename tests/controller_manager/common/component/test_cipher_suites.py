"""Names of cipher suites."""

import pytest

from controller_manager.common.component.secure_serving import (
    INSECURE_SUITES,
    KNOWN_SUITES,
    SECURE_SUITES,
    CipherSuites,
    choose_suites,
)
from controller_manager.common.serving import tls

AES, RC4 = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_RC4_128_SHA"


@pytest.mark.parametrize(
    ("names", "choice"),
    [
        ((AES,), CipherSuites("ECDHE-RSA-AES128-GCM-SHA256", (), ())),
        ((AES, "TLS_AES_128_GCM_SHA256", AES), CipherSuites("ECDHE-RSA-AES128-GCM-SHA256", (), ())),
        (("TLS_AES_128_GCM_SHA256",), CipherSuites("", (), ())),
        ((RC4,), CipherSuites("", (RC4,), (RC4,))),
        (
            ("TLS_RSA_WITH_AES_128_CBC_SHA", AES),
            CipherSuites("AES128-SHA:ECDHE-RSA-AES128-GCM-SHA256", ("TLS_RSA_WITH_AES_128_CBC_SHA",), ()),
        ),
        (
            ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
            CipherSuites("ECDHE-RSA-CHACHA20-POLY1305", (), ()),
        ),
    ],
)
def test_choose_suites_by_name_and_availability(names, choice):
    available = frozenset({*SECURE_SUITES.values(), *INSECURE_SUITES.values()} - {"RC4-SHA"})
    assert choose_suites(names, available) == choice


def test_openssl_supports_all_secure_suites():
    assert set(SECURE_SUITES.values()) <= tls.available_ciphers()
    chosen = choose_suites(KNOWN_SUITES, tls.available_ciphers())
    assert all("RC4" in name or "3DES" in name for name in chosen.missing)
    tls.context_of(tls.issue(tls.make_ca("ca"), "x"), policy=tls.TLSPolicy(ciphers=chosen.ciphers))
