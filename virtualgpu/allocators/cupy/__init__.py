"""CuPy's pools without a device: the virtual GPU's own pool and replays of traces both work by them."""
