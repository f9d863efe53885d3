"""The kubeconfigs of managers while the cluster runs, in virtual time."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from apiserver_stub.process.pki.authorities import Authorities
from controller_manager.cluster_up.kubeconfigs import ManagerKubeconfigs
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.tls import make_ca
from controller_manager.common.transport import kubeconfig
from controller_manager.common.transport.credentials import Credentials, from_identity
from controller_manager.testing.virtual import VirtualLoop

DAY = 86400.0


@pytest.mark.virtual
async def test_manager_certificates_follow_renewal_and_new_authority(tmp_path: Path) -> None:
    file, messages = tmp_path / "manager-0.kubeconfig", list[str]()
    files = ManagerKubeconfigs(tmp_path, ["manager-0"], "https://127.0.0.1:6443", messages.append)
    Authorities(tmp_path)
    files.write()
    credentials = Credentials(from_identity(kubeconfig.load(file).identity))  # like a manager that started at this time
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with Tasks() as tasks:
        tasks.start(files.keep(), name="kubeconfigs")
        for _ in range(6):
            loop.jump(100 * DAY)
            await asyncio.sleep(130)
            credential = await credentials.current()
            certificate = x509.load_pem_x509_certificate(credential.certificate)
            assert certificate.not_valid_after_utc - utc_now() > timedelta(days=100)
        other = make_ca("other")
        (tmp_path / "client-ca.crt").write_bytes(other.certificate)
        await asyncio.sleep(200)
        assert len(messages) == 1, "reported once, and nothing changes"
        (tmp_path / "client-ca.key").write_bytes(other.key)
        await asyncio.sleep(130)
        renewed = x509.load_pem_x509_certificate((await credentials.current()).certificate)
        renewed.verify_directly_issued_by(x509.load_pem_x509_certificate(other.certificate))
