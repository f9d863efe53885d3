"""The flags of `cluster-up`."""

from typing import Annotated

from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import FlagType

Arguments = Annotated[
    tuple[str, ...], FlagType("argument", lambda text: (text,), " ".join, lambda before, more: before + more)
]


class ClusterOptions(Options):
    """Cluster"""

    data_dir: str = flag(".cluster", "Folder of the store, the certificates, the kubeconfigs and the logs.")
    api_port: int = flag(6443, "Port of the API server, on 127.0.0.1; 0 chooses a free one.", minimum=0, maximum=65535)
    api_workers: int = flag(
        1, "How many processes of the API server answer requests, each on a core of its own.", minimum=1, maximum=64
    )
    manager_port: int = flag(
        10257,
        "Port of the first controller manager, on 127.0.0.1; the others follow. 0 chooses free ones.",
        minimum=0,
        maximum=65000,
    )
    managers: int = flag(2, "How many controller managers to start; one of them leads.", minimum=0, maximum=20)
    scheduler: bool = flag(
        True,
        "Have the managers schedule pods too, unless arguments for them name controllers; without it another scheduler "
        "can be run.",
    )
    watch: bool = flag(False, "Show the cluster in this terminal once it is ready, and refresh it every second.")
    nodes: int = flag(
        3,
        "How many virtual nodes there are, which run pods without a machine, unless arguments for the managers name "
        "controllers.",
        minimum=0,
        maximum=100_000,
    )
    apiserver_arg: Arguments = flag((), "A further argument for the API server; repeatable.")
    manager_arg: Arguments = flag((), "A further argument for every controller manager; repeatable.")
