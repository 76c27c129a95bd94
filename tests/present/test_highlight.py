"""The row that a study is about stands out in its figures."""

import dataclasses

from own_studies import MAIN, PROFILE, results_of
from record_folders import write_records

from pfl_benchmark.present.figures import make_figures
from pfl_benchmark.records.store import Store


def test_the_row_that_a_study_is_about_stands_out(tmp_path):
    write_records(tmp_path, MAIN, PROFILE)
    drawn = dataclasses.replace(MAIN, figures=("learning-curves", "sweep"))
    for study, strong in ((drawn, {"Ditto"}), (dataclasses.replace(drawn, highlight=""), set())):
        for picture in make_figures(results_of(study, Store.scan(tmp_path))):
            labels = [text for axes in picture.figure.axes for text in axes.texts]
            assert {text.get_text() for text in labels if text.get_fontweight() == "bold"} == strong
            assert {"Ditto", "FedAvg"} <= {text.get_text() for text in labels}
