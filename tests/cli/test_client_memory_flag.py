"""``--client-memory``: how bytes are written, and what is refused."""

import pytest

from pfl_benchmark import grid, run
from pfl_benchmark.config.flags import memory
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from tests.helpers.python import TINY


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4GiB", 2**32), ("4 gib", 2**32), ("4g", 2**32), ("1.5GiB", 3 * 2**29), ("500MB", 500_000_000),
        ("64KiB", 2**16), ("1TB", 10**12), ("0", 0), ("123", 123), ("123B", 123),
    ],
)  # fmt: skip
def test_bytes_as_people_write_them(text, expected):
    assert memory("--client-memory", text) == expected


@pytest.mark.parametrize("text", ["", "much", "-1", "4GiBs", "4iB", "1e9", "nan", "4,5GB", "٣GB", "9" * 30])
@pytest.mark.parametrize("name", ["--client-memory", "--other"])
def test_what_is_no_size_is_one_line(text, name):
    with pytest.raises(UserError, match=f"^{name} is .*expected bytes, such as 4GiB") as refused:
        memory(name, text)
    assert "\n" not in str(refused.value)


def test_it_is_a_keyword_in_python(tmp_path, monkeypatch):
    asked = []
    pick = Execution.pick_client_memory
    monkeypatch.setattr(
        Execution, "pick_client_memory", lambda self, device: asked.append(pick(self, device)) or asked[-1]
    )
    plain = run("fedper", results_dir=tmp_path / "plain", **TINY)
    for number, size in enumerate(("64KiB", 2**16, 0)):
        record = run("fedper", results_dir=tmp_path / f"{number}", client_memory=size, **TINY)
        assert record.summary["accuracy"] == plain.summary["accuracy"]
    grid("fedper", setting="digits-s2", rounds=1, client_memory="1MB", results_dir=tmp_path, device="cpu")
    assert asked[1:] == [2**16, 2**16, 0, 10**6]


@pytest.mark.parametrize("size", ["much", -1, True])
def test_what_is_no_size_is_told_by_its_keyword(size, tmp_path):
    with pytest.raises(UserError, match=f"^client_memory is '{size}'; expected bytes, such as 4GiB"):
        run("fedper", results_dir=tmp_path / "runs", client_memory=size, **TINY)
    assert not (tmp_path / "runs").exists()
