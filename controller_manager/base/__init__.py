"""Floor 0: wall time, chance, tasks, logs and metrics; nothing here knows Kubernetes."""
