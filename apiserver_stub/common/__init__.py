"""Shared modules of the API server: flags, configuration files, streams, spans, and the thread for large objects."""
