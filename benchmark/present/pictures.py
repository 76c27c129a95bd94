"""Pictures written where somebody wants them."""

from __future__ import annotations

from pathlib import Path

from pfl_benchmark.records.files import make_folder_of, write_bytes
from pfl_benchmark.render.picture import Picture


def write_picture(picture: Picture, path: Path) -> None:
    """Write a picture in the format of the file's name.

    Raises:
        UserError: the file cannot be written.
    """
    make_folder_of(path)
    write_bytes(path, picture.to_svg().encode() if path.suffix.lower() == ".svg" else picture.to_png())
