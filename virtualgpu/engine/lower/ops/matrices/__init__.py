"""Tensor cores: products of fragments, and how fragments are loaded and stored."""
