"""Forms of values: names, paths, PEM, and trees; nothing of kinds."""
