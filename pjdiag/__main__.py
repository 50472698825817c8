"""``python -m pjdiag``."""

from pjdiag.cli.main import run

run()
