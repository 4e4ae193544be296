"""Charts of the links between the GPUs of a machine."""
