"""Claims about performance that can be refuted by experiments."""
