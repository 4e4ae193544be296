"""Recipes for classrooms, and a class of simulated learners."""
