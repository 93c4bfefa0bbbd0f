"""Figures beside a floor that is measured in the same run: `make bench`."""
