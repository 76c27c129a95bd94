"""`plot_curves`: learning curves of finished runs."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from pfl_benchmark.errors import UserError
from pfl_benchmark.interface.load import Runs, records_of
from pfl_benchmark.present.compare import groups
from pfl_benchmark.present.figures.curves import compared
from pfl_benchmark.present.pictures import write_picture


def plot_curves(*runs: Runs, path: str | Path | None = None) -> Figure:
    """Draw test accuracy over rounds: a panel for each setting, a line for each method, means over seeds.

    ```python
    plot_curves(*run("fedper", dataset="digits", seed=[0, 1]), path="curves.pdf")
    ```

    Args:
        runs: results folders, folders of records, or records.
        path: also write the figure there; its ending says how (.pdf, .svg or .png).

    Returns:
        The figure, which belongs to no window.

    Raises:
        UserError: no runs, an unknown ending, or a file that cannot be written.
    """
    picture = compared(groups(records_of(runs)))
    if path is not None:
        file = Path(path).expanduser()
        if file.suffix.lower() not in (".pdf", ".svg", ".png"):
            raise UserError(f"path is {file}; expected a name that ends in .pdf, .svg or .png")
        write_picture(picture, file)
    return picture.figure
