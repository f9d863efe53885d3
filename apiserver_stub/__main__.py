"""Runs the API server: `python -m apiserver_stub`, or the command `apiserver-stub`."""

from apiserver_stub.process.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
