"""Storages of objects, ordered by revision: the protocol `Storage` and its implementations."""
