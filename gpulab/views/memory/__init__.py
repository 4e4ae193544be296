"""Views of a device's memory over time."""
