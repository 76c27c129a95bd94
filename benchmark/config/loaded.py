"""Plugins that this process has loaded (`resolve.plugins` does)."""

from __future__ import annotations

LOADED: dict[str, str] = {}  # names of modules by what was given, files as absolute paths
INSTALLED: set[str] = set()  # the modules of entry points among them
