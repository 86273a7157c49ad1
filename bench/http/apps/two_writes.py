"""Coatcheck's command line without one-write responses, to measure what they are worth."""

from coatcheck.cli.entry import main
from coatcheck.http import dispatch

dispatch.write_whole = lambda *_: False

if __name__ == "__main__":
    main()
