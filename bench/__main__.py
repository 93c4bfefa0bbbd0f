"""Run the benchmarks by name, or all of them: `python -m bench [NAME ...] [--quick] [--peer] [--json FILE]`."""

import argparse
import json
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import bench
from bench.measure import Measurement

_HEADERS = ("measure", "ours", "floor", "ratio", "goal", "reached")


def main() -> int:
    """Measure, print a table, and write it as JSON if requested."""
    modules = _benchmarks()
    arguments = _parse(list(modules))
    figures: list[Measurement] = []
    for name in arguments.names or modules:
        print(f"== {name}", flush=True)
        run = getattr(modules[name], "run_beside_peer" if arguments.peer else "run", modules[name].run)
        measured: list[Measurement] = run(arguments.quick)
        _print_table(measured)
        figures += measured
    if arguments.json:
        rows = [asdict(figure) | {"ratio": figure.ratio, "reached": figure.reached} for figure in figures]
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


def _benchmarks() -> dict[str, ModuleType]:
    """Return every module of this package that measures something, by its name."""
    modules = [import_module(f"bench.{found.name}") for found in iter_modules(bench.__path__) if found.name[0] != "_"]
    return {module.NAME: module for module in modules if hasattr(module, "NAME")}


def _parse(names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Benchmarks compared with a floor from the same run."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(names)}; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller data")
    parser.add_argument(
        "--peer",
        action="store_true",
        help="install another agent and measure it as well, where there is one to compare",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file too")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in names]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]}; known are {', '.join(names)}")
    return arguments


def _print_table(figures: list[Measurement]) -> None:
    rows = [_HEADERS, *map(_row, figures)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADERS))]
    for row in rows:
        first, *others = (
            text.ljust(width) if place == 0 else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *others]))


def _row(figure: Measurement) -> tuple[str, ...]:
    floor = "" if figure.floor is None else _number(figure.floor, figure.unit)
    ratio = "" if figure.ratio is None else f"{figure.ratio:.3g}x"
    goal = f"{'≥' if figure.at_least else '≤'} " + (
        f"{figure.goal:g}x" if figure.ratio else f"{figure.goal:g} {figure.unit}"
    )
    return figure.measure, _number(figure.ours, figure.unit), floor, ratio, goal, "yes" if figure.reached else "no"


def _number(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


if __name__ == "__main__":
    sys.exit(main())
