"""Preloads all modules of a manager, for processes that start one later. Import it only for this effect."""

import gc

from controller_manager.app import catalog, clients, main

__all__ = ("catalog", "clients", "main")

gc.disable()  # objects created before the process has started stay alive
catalog.installed()
