"""CEL as Kubernetes 1.36 speaks it: expressions are compiled against declared types and run as closures with a cost."""
