"""The folders of a server, which are its own alone."""

from pathlib import Path

from apiserver_stub.common.flags import ServingOptions, StorageOptions
from apiserver_stub.process.pki import MARKS
from controller_manager.common.base.files import private_folder
from controller_manager.common.options import Parsed


def cert_folder(options: Parsed) -> Path:
    """Return the folder of what the server issues."""
    return Path(options[ServingOptions].cert_dir or options[StorageOptions].data_dir)


def close_folders(options: Parsed) -> None:
    """Make the folders of the server its own alone. Raises OSError, and ValueError for one that is somebody else's."""
    for folder in {options[StorageOptions].folder, cert_folder(options)}:
        private_folder(folder, MARKS)
