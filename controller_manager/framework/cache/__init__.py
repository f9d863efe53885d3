"""Informers: local caches of API collections that follow the server. The cached objects are frozen and shared."""

from controller_manager.framework.cache.change import Change, InformerState, Selection
from controller_manager.framework.cache.indexer import Index, Indexer
from controller_manager.framework.cache.informer import Informer
from controller_manager.framework.cache.informers import Informers, ShardInformers
from controller_manager.framework.cache.reflector import Reflector
from controller_manager.framework.cache.shard import Shard

__all__ = [
    "Change",
    "Index",
    "Indexer",
    "Informer",
    "InformerState",
    "Informers",
    "Reflector",
    "Selection",
    "Shard",
    "ShardInformers",
]
