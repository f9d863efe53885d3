"""The site the flags describe: its certificate, kept or passing, and clear sentences about files of no use."""

import ssl

import pytest

from controller_manager.api.wire import Request, Response
from controller_manager.app.authentication import AuthenticationOptions, believe_files
from controller_manager.app.secure import ServingOptions, secure_site
from controller_manager.client import ConfigError
from controller_manager.serving import Site, tls
from controller_manager.serving.trust import Trust


async def handle(request: Request) -> Response:
    return Response(200, {}, request.certificate.common_name.encode() if request.certificate else b"nobody")


def site(client_ca_file: str = "", **serving) -> Site | None:
    trust = Trust()
    believe_files(AuthenticationOptions(client_ca_file=client_ca_file), trust)
    return secure_site(handle, ServingOptions(**serving), trust)


def test_port_0_serves_nothing():
    assert site(secure_port=0) is None


def test_a_certificate_is_kept_in_the_folder_and_used_again(tmp_path):
    for _ in range(2):
        assert site(cert_dir=str(tmp_path / "certs")) is not None
        made = (tmp_path / "certs" / "cluster-controller-manager.crt").read_bytes()
    assert (tmp_path / "certs" / "cluster-controller-manager.crt").read_bytes() == made
    assert site() is not None


def test_given_files_are_shown(tmp_path):
    pair = tls.issue(tls.make_ca("ca"), "me", hosts=("localhost",))
    pair.write(tmp_path / "a.crt", tmp_path / "a.key")
    made = site(tls_cert_file=str(tmp_path / "a.crt"), tls_private_key_file=str(tmp_path / "a.key"))
    assert made is not None
    assert made._tls("127.0.0.1").verify_mode is ssl.CERT_NONE
    made = site(str(tmp_path / "a.crt"))
    assert made._tls("127.0.0.1").verify_mode is ssl.CERT_OPTIONAL


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            {"cert_dir": "{tmp}/file/below"},
            "--cert-dir: the self-signed certificate in {tmp}/file/below cannot be served",
        ),
        ({"client_ca_file": "{tmp}/none"}, "--client-ca-file: {tmp}/none holds no certificates"),
        ({"client_ca_file": "{tmp}/file"}, "--client-ca-file: {tmp}/file holds no certificates"),
        (
            {"tls_cert_file": "{tmp}/file", "tls_private_key_file": "{tmp}/none"},
            "--tls-cert-file and --tls-private-key-file: {tmp}/file and {tmp}/none cannot be served: {tmp}/none: no ",
        ),
    ],
)
def test_files_of_no_use_are_named_with_their_flag(tmp_path, flags, problem):
    (tmp_path / "file").write_text("hello")
    with pytest.raises(ConfigError) as caught:
        site(**{name: value.format(tmp=tmp_path) for name, value in flags.items()})
    assert str(caught.value).startswith(problem.format(tmp=tmp_path))
