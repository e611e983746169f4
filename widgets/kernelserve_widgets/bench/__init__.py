"""Measurements of the notebook's part: `python -m kernelserve_widgets.bench`."""
