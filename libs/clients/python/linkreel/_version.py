"""The version of the package; `make release` writes the release's."""

__version__ = "0.0.0"
