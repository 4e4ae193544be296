"""Notebooks 06a and 06b: reductions, scans, histograms, stencils and rows."""
