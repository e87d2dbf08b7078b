"""The version: that of the git tag from which the package was built (see docs/releasing.md)."""

from importlib import metadata

try:
    __version__ = metadata.version("vpboost")
except metadata.PackageNotFoundError:  # the sources are on the path without having been installed
    __version__ = "0+unknown"
