"""The judge and the notes of a class without Jupyter: for graders, editors, scripts and instructors."""
