"""The evidence chain: corpora, tasks, training recipes.

Importing this package imports no torch; neither do ``recipe`` and ``corpora``.
"""
