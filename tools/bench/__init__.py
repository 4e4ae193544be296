"""How long the virtual GPU takes on this machine, beside another simulator."""
