"""Local copies of collections of the API, kept up to date; the objects in them are frozen and shared."""

from controller_manager.cache.change import Change, InformerState, Selection
from controller_manager.cache.informer import Informer
from controller_manager.cache.informers import Informers
from controller_manager.cache.reflector import Reflector
from controller_manager.cache.store import Index, Store

__all__ = ["Change", "Index", "Informer", "InformerState", "Informers", "Reflector", "Selection", "Store"]
