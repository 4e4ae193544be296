"""Layers that a call goes through."""
