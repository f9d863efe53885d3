"""The watch cache: the visible state of a storage, and its watches. Each change is encoded once for all streams."""
