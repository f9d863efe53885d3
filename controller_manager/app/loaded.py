"""Loads all that a manager is made of, for whoever starts one a little later; it is imported for that alone."""

import gc

from controller_manager.app import catalog, clients, main

__all__ = ("catalog", "clients", "main")

gc.disable()  # until the process has started, all that is made stays
catalog.installed()
