"""The process that looks into the records of a store: `python -m`, the database, and module and name of what inspects
objects. What it says is told in `checker.py`.
"""

import sys
from importlib import import_module
from pathlib import Path

from apiserver_stub.storage.audit import PORTION, Audit
from apiserver_stub.storage.checker import VOUCHER


def main() -> None:
    """Vouch for portions on standard output until all are read, or nobody listens any more."""
    path, module, function = sys.argv[1:]
    audit = Audit(Path(path))
    audit.open()
    for portion, sound in audit.portions(PORTION, getattr(import_module(module), function)):
        sys.stdout.buffer.write(VOUCHER.pack(*portion, sound))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
