"""Commands of the testing kit: `python -m controller_manager.testing record`."""

import sys


def main() -> None:
    """Run the command given as the first argument."""
    if sys.argv[1:2] == ["record"]:
        from controller_manager.testing import record

        record.main(sys.argv[2:])
    else:
        sys.stderr.write("Usage: python -m controller_manager.testing record [flags]; --help lists the flags.\n")
        sys.exit(0 if sys.argv[1:] in (["--help"], ["-h"]) else 2)


if __name__ == "__main__":
    main()
