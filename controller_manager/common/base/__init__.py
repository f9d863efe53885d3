"""Wall time, randomness, tasks, logs and metrics; nothing here knows Kubernetes."""
