"""Downloads: whole, resumed, checked. From a server in this process; no network."""

import dataclasses
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pfl_benchmark.datasets.text.fetch import Remote, fetch

CONTENT = bytes(range(256)) * 3000


class Handler(BaseHTTPRequestHandler):
    """Knows ranges, or does not; may hang up early."""

    ranges, upto, asked = True, None, []

    def do_GET(self):
        wanted = self.headers.get("Range", "bytes=0-")
        type(self).asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if self.ranges else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start : self.upto])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    handler = type("Own", (Handler,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        handler.url = f"http://127.0.0.1:{server.server_port}/file.zip"
        yield handler
        server.shutdown()
        thread.join()


@pytest.fixture
def remote(server):
    return Remote(server.url, "folder/file.zip", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def test_whole(remote, server, tmp_path, capsys):
    path = fetch(remote, tmp_path)
    assert path == tmp_path / "folder" / "file.zip"
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["file.zip"]
    assert "downloading file.zip (1 MB)" in capsys.readouterr().err


def test_interrupted_and_resumed(remote, server, tmp_path):
    server.upto = 300_000
    with pytest.raises(OSError, match=r"IncompleteRead|ended after 300,000 of 768,000 bytes"):
        fetch(remote, tmp_path)
    part = tmp_path / "folder" / "file.zip.part"
    assert part.stat().st_size == 300_000
    assert not (tmp_path / "folder" / "file.zip").exists()
    server.upto = None
    assert fetch(remote, tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=0-", "bytes=300000-"]
    assert not part.exists()


@pytest.mark.parametrize("have", [1, len(CONTENT) - 1])
def test_a_server_without_ranges_sends_everything_again(have, remote, server, tmp_path):
    server.ranges = False
    part = tmp_path / "folder" / "file.zip.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:have])
    assert fetch(remote, tmp_path).read_bytes() == CONTENT


def test_a_complete_part_needs_no_server(remote, server, tmp_path):
    part = tmp_path / "folder" / "file.zip.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT)
    assert fetch(remote, tmp_path).read_bytes() == CONTENT
    assert server.asked == []


@pytest.mark.parametrize("have", [b"", b"x" * 1000, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 1)])
def test_another_content_is_not_taken(have, remote, server, tmp_path):
    part = tmp_path / "folder" / "file.zip.part"
    part.parent.mkdir()
    part.write_bytes(have)
    other = Remote(remote.url, remote.path, remote.size, "0" * 64)
    with pytest.raises(OSError, match="checksum differs"):
        fetch(other, tmp_path)
    assert list(part.parent.iterdir()) == []  # nothing to go on with


def test_nobody_answers_and_nothing_is_left(remote, tmp_path):
    with pytest.raises(OSError, match=r"refused|reach"):
        fetch(dataclasses.replace(remote, url="http://127.0.0.1:9/file"), tmp_path / "new")
    assert not (tmp_path / "new").exists()
