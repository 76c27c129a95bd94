"""An observer that breaks off a run, as Ctrl-C does."""

from pfl_benchmark.experiment.unrecorded import Quiet


class Stop(Quiet):
    """Stops after round `last`; without one, after the first round that was not there before."""

    def __init__(self, last=None):
        self._last = last

    def start(self, rounds, done):
        self._done = done

    def round(self, line):
        stops = line["round"] > self._done if self._last is None else line["round"] == self._last
        if stops:
            raise KeyboardInterrupt
