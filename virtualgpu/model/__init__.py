"""The modelled hardware: devices, memory, clock, costs, and where blocks run."""
