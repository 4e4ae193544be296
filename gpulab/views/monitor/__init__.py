"""Load of a GPU over time: strips of shares, power, clocks and throttle reasons."""
