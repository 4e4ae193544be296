"""Conversion of findings to readable reports: names of elements, source lines, sentences and remedies."""
