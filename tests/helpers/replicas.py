"""Workers of a run on several devices that answer in this process."""

from concurrent.futures import Future

from pfl_benchmark.engine.executors.divided import Lost, Worker
from pfl_benchmark.engine.executors.replica import Replica
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import prepare
from pfl_benchmark.records.environment import device_name
from pfl_benchmark.resolve.run import resolve


class Here(Worker):
    """Answers at once; the requests with the numbers `lost` are lost."""

    def __init__(self, config, execution=None, lost=()):
        self._config, self._lost = config, {*lost}
        self._execution = execution or Execution(device="cpu", executor="loop")
        self.place, self.asked, self.starts, self.closed = "here", 0, 0, False
        self.restart()

    def restart(self):
        self.starts += 1
        run = resolve(self._config, self._execution)
        task = prepare(run, self._execution).task
        self._replica = Replica(task.executor, task.network)
        self.device, self.executor, self.cores = device_name(task.data.device), run.executor, 1

    def ask(self, request):
        answer = Future()
        self.asked += 1
        if self.asked in self._lost:
            answer.set_exception(Lost("killed"))
        else:
            answer.set_result(self._replica.serve(request))
        return answer

    def close(self):
        self.closed = True
