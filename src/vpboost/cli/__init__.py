"""The command line, ``vpboost``: see :mod:`vpboost.cli.main`."""
