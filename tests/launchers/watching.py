"""Watchers of cells that remember."""


class Log:
    """A watcher, and the observer of every cell."""

    def __init__(self):
        self.begun, self.ends, self.notes, self.waits = [], [], [], 0
        self.starts, self.rounds = [], []

    def begin(self, cell):
        self.begun.append(cell.title)
        return self

    def end(self, cell, summary, problem):
        self.ends.append((cell.title, problem))

    def wait(self, cells):
        self.waits += 1

    def note(self, text):
        self.notes.append(text)

    def start(self, rounds, done):
        self.starts.append(done)

    def round(self, line):
        self.rounds.append(line["round"])
