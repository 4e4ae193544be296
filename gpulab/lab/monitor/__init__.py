"""What a GPU does, live."""
