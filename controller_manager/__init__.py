"""A Kubernetes-compatible control plane in pure asyncio Python: common parts, framework, manager and testing kit."""

import sys

from controller_manager._moved_modules import MovedModules

sys.meta_path.insert(0, MovedModules())
