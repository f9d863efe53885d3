"""Flags of OpenID providers and of anonymous requests, alone, combined, and with the file."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.authn.jwt.configuration import from_flags
from apiserver_stub.common.flags import FLAGS, AuthenticationOptions
from apiserver_stub.process.build import build
from controller_manager.common.api.wire import Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.options.parse import FlagError
from tests.apiserver_stub.authn.jwt.conftest import document, rules

URL = "https://issuer.example"
GIVEN = (f"--oidc-issuer-url={URL}", "--oidc-client-id=cluster")


def options(*arguments: str) -> AuthenticationOptions:
    return FLAGS.parse(arguments)[AuthenticationOptions]


def username(*arguments: str) -> tuple[str, str | None]:
    mapping = from_flags(options(*GIVEN, *arguments)).jwt[0].claim_mappings.username
    return mapping.claim, mapping.prefix


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), ("sub", f"{URL}#")),
        (("--oidc-username-claim=name",), ("name", f"{URL}#")),
        (("--oidc-username-claim=email",), ("email", "")),
        (("--oidc-username-prefix=-",), ("sub", "")),
        (("--oidc-username-prefix=-", "--oidc-username-claim=email"), ("email", "")),
        (("--oidc-username-prefix=p:",), ("sub", "p:")),
        (("--oidc-username-prefix=p:", "--oidc-username-claim=email"), ("email", "p:")),
    ],
)
def test_username_prefix_by_claim_and_flag(arguments: tuple[str, ...], expected: tuple[str, str]) -> None:
    assert username(*arguments) == expected


def test_all_flags_configure_one_authenticator(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("authorities")
    found = from_flags(
        options(
            *GIVEN,
            f"--oidc-ca-file={tmp_path / 'ca.pem'}",
            "--oidc-groups-claim=roles",
            "--oidc-groups-prefix=r:",
            "--oidc-required-claim=hd=example.com",
            "--oidc-required-claim=list=a,b=c",
            "--oidc-signing-algs=RS256,ES384",
        )
    )
    (one,) = found.jwt
    assert (one.issuer.url, one.issuer.audiences, one.issuer.certificate_authority) == (
        URL,
        ("cluster",),
        "authorities",
    )
    assert (one.claim_mappings.groups.claim, one.claim_mappings.groups.prefix) == ("roles", "r:")
    required = [(rule.claim, rule.required_value) for rule in one.claim_validation_rules]
    assert required == [("hd", "example.com"), ("list", "a,b=c")]
    assert found.anonymous is None


def test_without_flags_there_is_no_authenticator() -> None:
    assert from_flags(options()).jwt == ()
    assert not options().names_issuers


@pytest.mark.parametrize(
    "arguments",
    [
        ("--oidc-issuer-url=https://issuer.example",),
        ("--oidc-client-id=cluster",),
        ("--oidc-username-claim=sub",),
        ("--oidc-groups-prefix=",),
        (*GIVEN, "--authentication-config=file"),
        ("--authentication-config=file", "--oidc-username-claim=sub"),
        (*GIVEN, "--oidc-signing-algs=HS256"),
        (*GIVEN, "--oidc-signing-algs=RS256,none"),
        (*GIVEN, "--oidc-signing-algs=EdDSA"),
        (*GIVEN, "--oidc-required-claim=hd"),
    ],
)
def test_incomplete_flag_combinations_are_rejected(arguments: tuple[str, ...]) -> None:
    with pytest.raises(FlagError, match="--oidc"):
        FLAGS.parse(arguments)


def flag_error(*arguments: str) -> str:
    with pytest.raises(ValueError) as caught:
        build(FLAGS.parse(("--storage-backend=memory", *arguments)), Runtime("test"))
    return str(caught.value)


def test_flags_are_validated_like_files(tmp_path: Path) -> None:
    assert "jwt[0].issuer.url" in flag_error("--oidc-issuer-url=http://issuer.example", "--oidc-client-id=cluster")
    own = flag_error(
        "--oidc-issuer-url=https://own.example", "--oidc-client-id=c", "--service-account-issuer=https://own.example"
    )
    assert "jwt[0].issuer.url" in own
    assert str(tmp_path / "none") in flag_error(*GIVEN, f"--oidc-ca-file={tmp_path / 'none'}")
    (tmp_path / "ca.pem").write_text("no certificate")
    assert "certificateAuthority" in flag_error(*GIVEN, f"--oidc-ca-file={tmp_path / 'ca.pem'}")


def test_unusable_file_fails_the_start(tmp_path: Path) -> None:
    file = tmp_path / "authentication.yaml"
    assert "can't be read" in flag_error(f"--authentication-config={file}")
    file.write_text(document({}, rules(issuer__url="http://a.b")))
    message = flag_error(f"--authentication-config={file}")
    for field in ("jwt[0].issuer.url", "jwt[0].issuer.audiences", "jwt[0].claimMappings.username", "jwt[1].issuer.url"):
        assert f"{field}: " in message
    file.write_text(document(rules(issuer__egressSelectorType="controlplane")))
    assert "jwt[0].issuer.egressSelectorType" in flag_error(f"--authentication-config={file}")
    direct = [{"name": "controlplane", "connection": {"proxyProtocol": "Direct"}}]
    kind = {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration"}
    (tmp_path / "egress.yaml").write_text(json.dumps({**kind, "egressSelections": direct}))
    flags = (f"--authentication-config={file}", f"--egress-selector-config-file={tmp_path / 'egress.yaml'}")
    build(FLAGS.parse(("--storage-backend=memory", *flags)), Runtime("test"))


async def anonymous_status(path: str, *arguments: str) -> int:
    """The status of a request without credentials."""
    server = build(FLAGS.parse(("--storage-backend=memory", *arguments)), Runtime("test"))
    await server.start()
    try:
        return (await server.handle(Request("GET", path, (), {}, b"", None))).status
    finally:
        await server.stop()


def anonymous(tmp_path: Path, value: Any) -> str:
    file = tmp_path / "authentication.yaml"
    file.write_text(document(anonymous=value))
    return f"--authentication-config={file}"


PATHS = {"enabled": True, "conditions": [{"path": "/livez"}, {"path": "/api"}]}


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("given", "flags", "statuses"),
    [
        (None, (), (200, 200, 403)),
        (None, ("--anonymous-auth=false",), (401, 401, 401)),
        ({"enabled": False}, (), (401, 401, 401)),
        ({"enabled": True}, (), (200, 200, 403)),
        (PATHS, (), (200, 401, 403)),
    ],
)
async def test_anonymous_access_follows_flags_and_file(
    tmp_path: Path, given: Any, flags: tuple[str, ...], statuses: tuple[int, ...]
) -> None:
    more = (*flags, "--authorization-mode=RBAC", *([anonymous(tmp_path, given)] if given is not None else []))
    assert tuple([await anonymous_status(path, *more) for path in ("/livez", "/readyz", "/api")]) == statuses


def test_anonymous_in_flag_and_file_is_rejected(tmp_path: Path) -> None:
    for value in ({"enabled": False}, {"enabled": True}, {}):
        assert "--anonymous-auth" in flag_error(anonymous(tmp_path, value), "--anonymous-auth=true")
    file = tmp_path / "authentication.yaml"
    file.write_text(document())
    build(
        FLAGS.parse(("--storage-backend=memory", f"--authentication-config={file}", "--anonymous-auth=false")),
        Runtime("test"),
    )


def test_no_issuer_loads_no_jwt_modules() -> None:
    code = (
        "import sys, json\nfrom apiserver_stub.process.build import build\n"
        "from apiserver_stub.common.flags import FLAGS\n"
        "from controller_manager.common.base.runtime import Runtime\n"
        "build(FLAGS.parse(['--storage-backend=memory']), Runtime('test'))\n"
        "print(json.dumps([name for name in sys.modules if name.startswith(('apiserver_stub.authn.jwt.', "
        "'controller_manager.common.cel.'))]))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == ["apiserver_stub.authn.jwt.configuration"]
