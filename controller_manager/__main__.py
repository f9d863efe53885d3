"""Runs the controller manager: `python -m controller_manager`, or the command `cluster-controller-manager`."""

import gc


def main() -> None:
    """Run the controller manager, with all controllers that are installed. Never returns."""
    gc.disable()  # until the process has started, all that is made stays
    from controller_manager.app.main import run_manager

    run_manager()


if __name__ == "__main__":
    main()
