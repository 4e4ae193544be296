"""Launches that are timed on real GPUs, to calibrate and validate the virtual GPU's clock."""
