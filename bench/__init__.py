"""Benchmarks, each compared with a floor measured in the same run: `make bench`."""
