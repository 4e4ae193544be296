"""Launches that are timed on real GPUs, to calibrate the virtual GPU's clock and to judge it."""
