"""Cache behaviour of a launch: its accesses are recorded while it runs, and replayed through a model
afterwards.
"""
