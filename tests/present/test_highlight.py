"""The row that a study is about stands out in its figures."""

import dataclasses

from matplotlib.lines import Line2D
from own_studies import MAIN, PROFILE, results_of
from record_folders import write_records

from pfl_benchmark.present.figures import make_figures
from pfl_benchmark.records.store import Store
from pfl_benchmark.render.style import STRONG


def test_the_row_that_a_study_is_about_stands_out(tmp_path):
    write_records(tmp_path, MAIN, PROFILE)
    drawn = dataclasses.replace(MAIN, figures=("learning-curves", "sweep"))
    for study, strong in ((drawn, {"Ditto"}), (dataclasses.replace(drawn, highlight=""), set())):
        for picture in make_figures(results_of(study, Store.scan(tmp_path))):
            legends = [*picture.figure.legends, *(axes.get_legend() for axes in picture.figure.axes)]
            lines = [
                (text.get_text(), line.get_linewidth())
                for legend in filter(None, legends)
                for line, text in zip(legend.legend_handles, legend.get_texts(), strict=True)
                if isinstance(line, Line2D)
            ]
            assert {"Ditto", "FedAvg"} <= {title for title, _ in lines}
            assert {title for title, width in lines if width == STRONG} == strong
