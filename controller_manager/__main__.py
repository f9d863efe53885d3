"""Runs the controller manager: `python -m controller_manager`."""

from controller_manager.app.main import run_manager as main

if __name__ == "__main__":
    main()
