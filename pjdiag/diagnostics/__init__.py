"""The measurements, a module each, with a function from a reading to a Result.

Importing this package imports none of them: a command pays for its own measurement only.
"""
