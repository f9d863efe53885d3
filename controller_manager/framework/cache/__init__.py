"""Informers: local caches of API collections that follow the server. The cached objects are frozen and shared."""
