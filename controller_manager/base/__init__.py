"""Floor 0: wall time, randomness, tasks, logs and metrics; nothing here knows Kubernetes."""
