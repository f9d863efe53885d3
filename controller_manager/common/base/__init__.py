"""Wall time, randomness, tasks, logs and metrics; this package does not depend on Kubernetes."""
