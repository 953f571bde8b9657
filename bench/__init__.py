"""Measurements: `python -m bench` runs all, `python -m bench NAME` one. Each starts what it needs and cleans up."""
