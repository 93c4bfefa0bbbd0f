"""Run Python code written by the model in a separate process, with tools as functions."""
