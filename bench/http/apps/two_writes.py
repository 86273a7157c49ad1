"""Coatcheck's command line without answers in one write: what they are worth is measured so."""

from coatcheck.cli.entry import main
from coatcheck.http import dispatch

dispatch.write_whole = lambda *_: False

if __name__ == "__main__":
    main()
