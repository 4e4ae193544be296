"""What a GPU does, over time: strips of shares, power, clocks and what holds them back."""
