"""Records of a device: limits, attributes, load, and the code that a driver can load."""
