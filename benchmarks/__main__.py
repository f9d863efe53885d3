"""`make bench`: every benchmark, or those that are named."""

import argparse
import sys

from benchmarks.suites import LONG, SUITES, measure


def main() -> None:
    suites = [*SUITES, *LONG]
    shown = ", ".join(suites)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, beside ceilings and aims.")
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"some of {shown}; else all but {', '.join(LONG)}")
    names = parser.parse_args().suites or list(SUITES)
    if unknown := [name for name in names if name not in suites]:
        parser.error(f"there is no benchmark named {unknown[0]}; there are {shown}")
    print(f"Python {' '.join(sys.version.split())}")
    print(f"{'':34} {'measured':>18} {'ceiling':>20} {'ratio':>8}")
    for name in names:
        for result in measure(name):
            print(result, flush=True)


if __name__ == "__main__":
    main()
