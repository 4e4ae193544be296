"""Explanations of a kernel's time: the ceilings of the device (roofline), and the separate causes."""
