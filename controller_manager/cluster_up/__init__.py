"""`cluster-up`: runs and supervises an API server and controller managers as child processes."""
