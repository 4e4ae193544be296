"""Roofline charts: launches below the ceilings of their device."""
