"""A layer imports only lower layers."""

import subprocess
import sys
from pathlib import Path


def test_import_contracts_hold(root: Path) -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
