"""What every room may import: flags, configuration files, streams, spans, and the thread for large objects."""
