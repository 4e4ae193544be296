"""Launches under the ceilings of their device."""
