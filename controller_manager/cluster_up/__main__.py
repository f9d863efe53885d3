"""Starts a control plane on this machine: `python -m controller_manager.cluster_up`, or the command `cluster-up`."""

import asyncio
import sys

from controller_manager.cluster_up.cluster import LocalCluster
from controller_manager.cluster_up.options import ClusterOptions
from controller_manager.cluster_up.watch import Screen, wants_color
from controller_manager.common.base.errors import CannotStart
from controller_manager.common.options.command_line import command_line
from controller_manager.common.options.parse import FlagSet


def main() -> None:
    """Entry point of the console script."""
    parsed = command_line("cluster-up", "Start a control plane on this machine.", FlagSet(ClusterOptions), sys.argv[1:])
    try:
        status = asyncio.run(LocalCluster(parsed[ClusterOptions], Screen(_write, colored=wants_color())).run())
    except CannotStart as error:
        sys.stderr.write(f"cluster-up: {error}\n")
        status = 1
    sys.exit(status)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
