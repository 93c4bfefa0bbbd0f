"""Run benchmarks by name, or all of them: `python -m bench [NAME ...] [--quick] [--peer] [--json FILE]`."""

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
    """Run the benchmarks, print a table, and write it as JSON if requested."""
    modules = _find_benchmarks()
    arguments = _parse_arguments(list(modules))
    measurements: list[Measurement] = []
    for name in arguments.names or modules:
        print(f"== {name}", flush=True)
        run = getattr(modules[name], "run_with_peer" if arguments.peer else "run", modules[name].run)
        measured: list[Measurement] = run(arguments.quick)
        _print_table(measured)
        measurements += measured
    if arguments.json:
        rows = [
            asdict(measurement) | {"ratio": measurement.ratio, "reached": measurement.reached}
            for measurement in measurements
        ]
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


def _find_benchmarks() -> dict[str, ModuleType]:
    """Return the benchmark modules of this package by name."""
    modules = [import_module(f"bench.{found.name}") for found in iter_modules(bench.__path__) if found.name[0] != "_"]
    return {module.NAME: module for module in modules if hasattr(module, "NAME")}


def _parse_arguments(names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Benchmarks compared with a floor from the same run."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"benchmarks to run: {', '.join(names)}; all by default"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller data")
    parser.add_argument(
        "--peer",
        action="store_true",
        help="also install and measure another agent, in benchmarks that support it",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to a file")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in names]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]}; available are {', '.join(names)}")
    return arguments


def _print_table(measurements: list[Measurement]) -> None:
    rows = [_HEADERS, *map(_format_row, measurements)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADERS))]
    for row in rows:
        first, *others = (
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *others]))


def _format_row(measurement: Measurement) -> tuple[str, ...]:
    floor = "" if measurement.floor is None else _format_number(measurement.floor, measurement.unit)
    ratio = "" if measurement.ratio is None else f"{measurement.ratio:.3g}x"
    goal = f"{'≥' if measurement.at_least else '≤'} " + (
        f"{measurement.goal:g}x" if measurement.ratio else f"{measurement.goal:g} {measurement.unit}"
    )
    return (
        measurement.measure,
        _format_number(measurement.ours, measurement.unit),
        floor,
        ratio,
        goal,
        "yes" if measurement.reached else "no",
    )


def _format_number(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


if __name__ == "__main__":
    sys.exit(main())
