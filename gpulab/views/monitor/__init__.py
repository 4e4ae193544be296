"""Charts of a GPU's load over time: utilization, power, clocks and reasons for lower clocks."""
