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
    makers = {".svg": lambda: picture.to_svg().encode(), ".pdf": picture.to_pdf}
    write_bytes(path, makers.get(path.suffix.lower(), picture.to_png)())
