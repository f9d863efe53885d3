"""The private folders of a server."""

from pathlib import Path

from apiserver_stub.common.flags import ServingOptions, StorageOptions
from apiserver_stub.process.pki import MARKS
from controller_manager.common.base.files import private_folder
from controller_manager.common.options.parse import Parsed


def cert_folder(options: Parsed) -> Path:
    """Return the folder of issued certificates."""
    return Path(options[ServingOptions].cert_dir or options[StorageOptions].data_dir)


def close_folders(options: Parsed) -> None:
    """Make the folders of the server private. Raises OSError, and ValueError for a folder in use by something else."""
    for folder in {options[StorageOptions].folder, cert_folder(options)}:
        private_folder(folder, MARKS)
