"""The process of the API server: command line, assembly, life cycle, workers, and certificates."""
