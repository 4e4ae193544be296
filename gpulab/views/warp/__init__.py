"""The warp stepper: its record made ready, its words, its picture, its widget."""
