"""The process that checks the records of a store. Its arguments are the database, and the module and name of the
function that inspects objects. The output format is described in `checker.py`.
"""

import sys
from importlib import import_module
from pathlib import Path

from apiserver_stub.storage.audit import PORTION, Audit
from apiserver_stub.storage.checker import VOUCHER


def main() -> None:
    """Write a voucher for each portion to standard output, until all are read or the reader is gone."""
    path, module, function = sys.argv[1:]
    audit = Audit(Path(path))
    audit.open()
    for portion, sound in audit.portions(PORTION, getattr(import_module(module), function)):
        sys.stdout.buffer.write(VOUCHER.pack(*portion, sound))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
