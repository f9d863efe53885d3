"""The kubeconfigs of the managers, which are renewed before they expire."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from controller_manager.common.api.platform import MANAGER_USER

_RENEW_EVERY = 5.0  # seconds; managers whose authority was replaced keep their lease


class ManagerKubeconfigs:
    """The kubeconfigs of these managers, in the folder of the authorities; `server` is the URL of the API server."""

    def __init__(self, folder: Path, names: Sequence[str], server: str, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._files = [folder / f"{name}.kubeconfig" for name in names]
        self._server = server
        self._say = say

    def write(self) -> None:
        """Write or renew the kubeconfigs if needed. Raises OSError or ValueError."""
        from apiserver_stub.process.pki.authorities import (  # while the API server starts
            Authorities,
            CertificateIdentity,
        )

        authorities = Authorities(self._folder)
        for file in self._files:
            authorities.renewable_kubeconfig(file, self._server, CertificateIdentity(MANAGER_USER))

    async def keep(self) -> None:
        """Renew the kubeconfigs before they expire, until cancelled. Each problem is reported once."""
        reported = ""
        while True:
            await asyncio.sleep(_RENEW_EVERY)
            problem = ""
            try:
                self.write()
            except (OSError, ValueError) as error:
                problem = f"the kubeconfigs of the managers cannot be renewed: {error}"
            if problem and problem != reported:
                self._say(problem)
            reported = problem
