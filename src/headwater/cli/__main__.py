"""`python -m headwater.cli`: the command where its script is not on the PATH."""

from headwater.cli.main import run

run()
