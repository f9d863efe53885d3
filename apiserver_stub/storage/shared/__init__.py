"""One storage for several processes: its owner serves it on a Unix socket, the others use it as one of their own."""
