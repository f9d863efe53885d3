"""Runs the controller manager: `python -m controller_manager`."""

from controller_manager.app.main import main

if __name__ == "__main__":
    main()
