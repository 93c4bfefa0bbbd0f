"""Entry point and composition root: the only package that imports every other package."""
