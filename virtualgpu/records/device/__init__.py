"""Properties of a device: limits, attributes, load, and loadable images."""
