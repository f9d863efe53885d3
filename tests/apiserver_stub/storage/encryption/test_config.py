"""EncryptionConfiguration: errors name fields and are reported together; secrets are not shown."""

from pathlib import Path

import pytest

from apiserver_stub.common.config_file import ConfigFileError
from apiserver_stub.storage.encryption.config import EncryptionConfiguration, parse_encryption

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
K16, K32 = "AAECAwQFBgcICQoLDA0ODw==", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
ID = "{identity: {}}"


def parsed(text: str) -> EncryptionConfiguration:
    return parse_encryption(f"{HEAD}resources: {text}".encode(), Path("enc.yaml"))


def rule(resources: str, *providers: str) -> str:
    return f"{{resources: [{resources}], providers: [{', '.join(providers)}]}}"


def provider(text: str) -> str:
    return f"[{rule('secrets', text)}]"


def keys(name: str, text: str) -> str:
    return provider(f"{{{name}: {{keys: {text}}}}}")


def kms(text: str) -> str:
    return provider(f"{{kms: {{{text}}}}}")


def test_valid_file_is_read() -> None:
    everything = rule("'*.*'", ID)
    secrets = rule("secrets, boats.example.com, '*.apps'", f"{{secretbox: {{keys: [{{name: a, secret: {K32}}}]}}}}", ID)
    found = parsed(f"[{secrets}, {everything}]")
    assert found.resources[0].resources == ("secrets", "boats.example.com", "*.apps")
    assert found.resources[0].providers[0].secretbox is not None
    assert found.resources[1].providers[0].identity is not None
    service = parsed(kms("apiVersion: v2, name: a, endpoint: 'unix:///a.sock'")).resources[0].providers[0].kms
    assert service is not None
    assert service.timeout == 3


P0 = "resources[0].providers[0]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", ["resources: Required value"]),
        ("[{}]", ["resources[0].resources: Required value", "resources[0].providers: Required value"]),
        (f"[{rule('secrets, secrets', ID)}]", ["resources[0].resources: Invalid value"]),
        (f"[{rule(chr(39) + '*.' + chr(39) + ', secrets', ID)}]", ["resources[0].resources: Invalid value"]),
        (f"[{rule('Secrets', ID)}]", ["resources[0].resources[0]: Invalid value"]),
        (f"[{rule(chr(39) + '*' + chr(39), ID)}]", ["resources[0].resources[0]: Invalid value"]),
        (f"[{rule('apiserveripinfo', ID)}]", ["resources[0].resources[0]: Invalid value"]),
        (f"[{rule('events.events.k8s.io', ID)}]", ["resources[0].resources[0]: Invalid value"]),
        (f"[{rule('ingresses.extensions', ID)}]", ["resources[0].resources[0]: Invalid value"]),
        (f"[{rule(chr(39) + 'secrets.*' + chr(39), ID)}]", ["resources[0].resources[0]: Invalid value"]),
        (f"[{rule(chr(39) + '*.*' + chr(39), ID)}, {rule('secrets', ID)}]", ["resources[1].resources: Invalid value"]),
        (provider("{}"), [f"{P0}: Invalid value"]),
        (provider("{identity: {}, aesgcm: {}}"), [f"{P0}: Invalid value"]),
        (provider("{rot13: {}}"), [f"{P0}: Object contains unknown field `rot13`"]),
        (keys("aescbc", "[]"), [f"{P0}.aescbc.keys: Required value"]),
        (keys("aesgcm", "[{}]"), [f"{P0}.aesgcm.keys[0].name: Required", f"{P0}.aesgcm.keys[0].secret: Required"]),
        (keys("aesgcm", "[{name: a, secret: hush!}]"), [f'{P0}.aesgcm.keys[0].secret: Invalid value: "REDACTED"']),
        (keys("aesgcm", "[{name: a, secret: aHVzaA==}]"), [f'{P0}.aesgcm.keys[0].secret: Invalid value: "REDACTED"']),
        (keys("secretbox", f"[{{name: a, secret: {K16}}}]"), [f"{P0}.secretbox.keys[0].secret: Invalid value"]),
        (kms("apiVersion: v2, endpoint: 'unix:///a'"), [f"{P0}.kms.name: Required value"]),
        (kms("apiVersion: v2, name: 'a:b', endpoint: 'unix:///a'"), [f"{P0}.kms.name: Invalid value"]),
        (kms("apiVersion: v2, name: a"), [f"{P0}.kms.endpoint: Invalid value"]),
        (kms("apiVersion: v2, name: a, endpoint: 'http://a'"), [f"{P0}.kms.endpoint: Invalid value"]),
        (kms("apiVersion: v2, name: a, endpoint: 'unix:///a', timeout: 0s"), [f"{P0}.kms.timeout: Invalid value"]),
        (kms("apiVersion: v2, name: a, endpoint: 'unix:///a', cachesize: 3"), [f"{P0}.kms.cachesize: Invalid value"]),
        (kms("name: a, endpoint: 'unix:///a'"), [f"{P0}.kms.apiVersion: Invalid value"]),
        (kms("apiVersion: v3, name: a, endpoint: 'unix:///a'"), [f"{P0}.kms.apiVersion: Invalid value"]),
    ],
)
def test_invalid_fields_are_reported(text: str, said: list[str]) -> None:
    with pytest.raises(ConfigFileError) as caught:
        parsed(text)
    for problem in said:
        assert problem in str(caught.value)
    assert "hush" not in str(caught.value)
    assert "aHVzaA" not in str(caught.value)


def test_two_kms_providers_of_one_name_are_rejected() -> None:
    service = "{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a'}}"
    with pytest.raises(ConfigFileError, match=r"providers\[1\].kms.name: Invalid value"):
        parsed(f"[{rule('secrets', service, service)}]")


def test_repr_hides_secrets() -> None:
    assert K32 not in repr(parsed(keys("aesgcm", f"[{{name: a, secret: {K32}}}]")))
