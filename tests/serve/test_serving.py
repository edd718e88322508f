"""The server as a whole: versions that come and go, its end, its limits, its token, its log and its metrics."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import LONG, started, until
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from serve_support import dense, keras, serving, write_run

import rudel

ROW = [0.5, 1.0, -1.0, 2.0]


def versions(server: Any, name: str) -> list[str]:
    return [each["version"] for each in server.ask(f"/v1/models/{name}").json["model_version_status"]]


def replace(run: Path, other: Path) -> None:
    """Puts another finished run in the place of one, as a training does: the summary goes first, and comes last."""
    (run / "summary.json").unlink()
    for name in ("model.keras", "summary.json"):
        shutil.copy(other / name, run / f".{name}")
        (run / f".{name}").rename(run / name)


class Asking:
    """Asks all the time, from two threads, until it is stopped; remembers the answers, and when each was asked for."""

    def __init__(self, server: Any, path: str) -> None:
        self.answers: list[Any] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(server, path)) for _ in range(2)]

    def __enter__(self) -> "Asking":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, server: Any, path: str) -> None:
        body = json.dumps({"instances": [ROW]}).encode()
        connection = server.connect()
        while not self._stop.is_set():
            asked = time.perf_counter()
            connection.request("POST", path, body)
            answer = connection.getresponse()
            self.answers.append((asked, answer.status, json.loads(answer.read())))
        connection.close()


@pytest.fixture(scope="module")
def changing(runs: Path, tmp_path_factory: pytest.TempPathFactory, warm_python: str) -> Iterator[tuple[Any, Path]]:
    """A server for a run and a folder of versions, and the folder that they are in."""
    folder = tmp_path_factory.mktemp("changing")
    shutil.copytree(runs / "small", folder / "run")
    shutil.copytree(runs / "small", folder / "versions/3")
    arguments = [folder / "run", f"net={folder / 'versions'}", "--max-batch", "1"]
    with serving(folder, *arguments, python=warm_python) as server:
        yield server, folder


def test_a_run_that_is_trained_anew_is_the_next_version(changing: tuple[Any, Path]) -> None:
    server, folder = changing
    run, other = folder / "run", write_run(folder / "other", dense(bias=1.0))
    before, after = (rudel.predict(rudel.load(path), np.array([ROW], np.float32)) for path in (run, other))
    with Asking(server, "/v1/models/run:predict") as asking:
        until(lambda: len(asking.answers) > 10)
        replace(run, other)
        until(lambda: versions(server, "run") == ["2"])
        now = time.perf_counter()
        until(lambda: sum(asked > now for asked, *_ in asking.answers) > 10)
    assert {status for _, status, _ in asking.answers} == {200}
    until(lambda: 'model="run",route="predict",status="200",version="2"' in server.ask("/metrics").body.decode())
    until(lambda: 'model="run",version="1"' not in server.ask("/metrics").body.decode())
    gone = [line for line in server.ask("/metrics").body.decode().splitlines() if 'version="1"' in line]
    assert [line for line in gone if 'model="run"' in line] == []
    np.testing.assert_allclose(asking.answers[0][2]["predictions"], before, rtol=1e-5)
    for asked, _, answer in asking.answers:
        if asked > now:
            np.testing.assert_allclose(answer["predictions"], after, rtol=1e-5)
    assert server.ask("/v1/models/run/versions/1:predict", {"instances": [ROW]}).status == 404
    assert "run: version 2 is now served." in server.log.read_text()


def test_versions_in_a_folder_come_and_go(changing: tuple[Any, Path], runs: Path) -> None:
    server, folder = changing
    assert versions(server, "net") == ["3"]
    (folder / "versions/3/summary.json").unlink()  # as a training does that is resumed
    for number, there in (("4", ["4", "3"]), ("5", ["5", "4", "3"])):
        shutil.copytree(runs / "small", folder / number)
        (folder / number).rename(folder / "versions" / number)
        until(lambda there=there: versions(server, "net") == there)
    (folder / "versions/5").rename(folder / "5")
    until(lambda: versions(server, "net") == ["4", "3"])
    answers = [server.ask(f"/v1/models/net{v}:predict", {"instances": [ROW]}) for v in ("", "/versions/3")]
    assert [answer.status for answer in answers] == [200, 200]
    (folder / "versions/3").rename(folder / "3")
    until(lambda: versions(server, "net") == ["4"])
    (folder / "versions/4/model.keras").write_bytes(b"nothing")
    until(lambda: "cannot be served, and the old one stays" in server.log.read_text())
    assert server.ask("/v1/models/net:predict", {"instances": [ROW]}).status == 200
    assert server.ask("/v2/health/ready").status == 200
    metrics = server.ask("/metrics").body.decode().splitlines()
    assert {'rudel_load_failed{model="net"} 1.0', 'rudel_load_failed{model="run"} 0.0'} <= set(metrics)
    shutil.copy(runs / "small/model.keras", folder / "versions/4")
    until(lambda: 'rudel_load_failed{model="net"} 0.0' in server.ask("/metrics").body.decode())
    (folder / "5/model.keras").write_bytes(b"nothing")
    for kind in ("5", "4.tflite"):  # one that is broken, and one whose number another has
        (folder / kind).touch()
        (folder / kind).rename(folder / "versions" / kind)
        until(lambda: 'rudel_load_failed{model="net"} 1.0' in server.ask("/metrics").body.decode())
        (folder / "versions" / kind).rename(folder / kind)
        until(lambda: 'rudel_load_failed{model="net"} 0.0' in server.ask("/metrics").body.decode())


def test_a_model_file_that_is_replaced_is_served_again(start: Any, tmp_path: Path) -> None:
    models = {bias: dense(bias) for bias in (0.0, 1.0)}
    (tmp_path / "folders/1").mkdir(parents=True)
    (tmp_path / "files").mkdir()
    places = ("net.keras", "folders/1/model.keras", "files/7.keras")
    for place in places:
        models[0.0].save(tmp_path / place)
    (tmp_path / "broken.keras").write_bytes(b"nothing")
    paths = [tmp_path / name for name in ("net.keras", "folders", "files", "broken.keras")]
    server = start(*paths, "--max-batch", "1", "--classes", "bit,bot,but")
    served = {"net": ["1"], "folders": ["1"], "files": ["7"]}
    assert server.ask("/").json["models"] == served
    assert "broken.keras is not a Keras model file" in server.ask("/").json["unserved"]["broken"]
    for name in ("net.keras", "broken.keras"):
        models[1.0].save(tmp_path / name)
    until(lambda: server.ask("/").json["models"] == served | {"net": ["2"], "broken": ["1"]})
    wanted = {bias: rudel.predict(model, np.array([ROW], np.float32))[0] for bias, model in models.items()}
    for name, bias in (("net", 1.0), ("broken", 1.0), ("folders", 0.0), ("files", 0.0)):
        (found,) = server.ask(f"/v1/models/{name}:classify", {"instances": [ROW]}).json["results"]
        scores = dict(zip(("bit", "bot", "but"), wanted[bias].tolist(), strict=True))
        assert dict(found) == pytest.approx(scores, rel=1e-5)


def test_a_broken_model_does_not_keep_the_others_from_being_served(start: Any, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "small", tmp_path / "broken")
    (tmp_path / "broken/model.keras").write_bytes(b"nothing")
    server = start(runs / "small", tmp_path / "broken", runs / "digits")
    assert "broken: cannot be served: " in server.log.read_text()
    answers = [
        server.ask(f"/v1/models/{name}:predict", {"instances": [ROW]}) for name in ("small", "broken", "unknown")
    ]
    assert [answer.status for answer in answers] == [200, 503, 404]
    assert answers[1].error.startswith("The model `broken` cannot be served: ")
    assert server.ask("/v2/models/broken/ready").status == 503
    assert server.ask("/v2/models/small/ready").status == 200
    assert server.ask("/").json["models"] == {"small": ["1"], "digits": ["1"]}
    assert answers[1].error.endswith(server.ask("/").json["unserved"]["broken"])
    assert [server.ask(f"/{version}/models").json["models"] for version in ("v1", "v2")] == [
        ["broken", "digits", "small"]
    ] * 2
    ready = server.ask("/v2/health/ready")
    assert (ready.status, ready.error) == (503, "1 of 3 models cannot be served: `/` says why.")
    assert 'rudel_load_failed{model="broken"} 1.0' in server.ask("/metrics").body.decode()
    assert server.ask("/openapi.json").status == 200
    replace(tmp_path / "broken", write_run(tmp_path / "whole", dense()))
    until(lambda: server.ask("/v1/models/broken:predict", {"instances": [ROW]}).status == 200)
    assert server.ask("/v2/health/ready").json == {"ready": True}
    assert server.ask("/").json["unserved"] == {}
    assert 'rudel_load_failed{model="broken"} 0.0' in server.ask("/metrics").body.decode()


@pytest.mark.parametrize("broken", ["1", "2"])
def test_a_broken_version_does_not_keep_the_others_from_being_served(
    start: Any, runs: Path, tmp_path: Path, broken: str
) -> None:
    for number in ("1", "2"):
        shutil.copytree(runs / "small", tmp_path / "net" / number)
    (tmp_path / "net" / broken / "model.keras").write_bytes(b"nothing")
    server = start(tmp_path / "net")
    whole = {"1": "2", "2": "1"}[broken]
    assert server.ask("/").json["models"] == {"net": [whole]}
    assert server.ask("/openapi.json").status == 200
    assert server.ask("/v1/models/net:predict", {"instances": [ROW]}).status == 200
    assert f"net: {tmp_path / 'net' / broken} cannot be served: " in server.log.read_text()


WAITS = """
import os, pathlib, threading
import keras

class Waits(keras.layers.Layer):
    def save_own_variables(self, store):
        if place := os.environ.get("REACHED"):
            pathlib.Path(place).touch()
            threading.Event().wait()
"""


def test_one_that_is_ended_while_it_loads_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    scope: dict[str, Any] = {"__name__": "waits"}
    exec(WAITS, scope)
    keras.Sequential([keras.Input((4,)), scope["Waits"]()]).save(tmp_path / "net.keras")
    (tmp_path / "temporary").mkdir()
    reached = tmp_path / "reached"
    command = [Path(sys.executable).with_name("rudel"), "serve", "net.keras", "--port", "0", "--code", "waits.py"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary"), "REACHED": str(reached)}
    with started(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE) as server:
        until(reached.exists)
        assert list((tmp_path / "temporary").glob("**/rudel-model-*"))
        server.send_signal(signal.SIGTERM)
        assert server.wait(LONG) == 128 + signal.SIGTERM
        assert server.stderr
        assert server.stderr.read().endswith("Ended by SIGTERM.\n")
    assert not list((tmp_path / "temporary").glob("rudel-*"))


def test_it_finishes_what_it_has_begun(start: Any, runs: Path) -> None:
    """A request whose body is on its way when SIGTERM comes is answered; new connections are refused."""
    server = start(runs / "small", "--max-batch", "1")
    body = json.dumps({"instances": [ROW]}).encode()
    idle, begun = server.connect(), server.connect()
    idle.connect()
    begun.putrequest("POST", "/v1/models/small:predict")
    begun.putheader("content-length", str(len(body)))
    begun.endheaders()
    begun.send(body[:5])
    until(lambda: server.ask("/v2/health/live").status == 200)
    server.process.send_signal(signal.SIGTERM)

    def refused() -> bool:
        try:
            server.ask("/v2/health/live")
        except OSError:
            return True
        return False

    until(refused)
    assert idle.sock.recv(1) == b""
    begun.send(body[5:])
    answer = begun.getresponse()
    assert answer.status == 200
    assert answer.getheader("connection") == "close"
    assert len(json.loads(answer.read())["predictions"]) == 1
    assert server.process.wait(LONG) == 0
    assert "Traceback" not in server.log.read_text()
    begun.close()
    idle.close()


@pytest.fixture(scope="module")
def strict(runs: Path, tmp_path_factory: pytest.TempPathFactory, warm_python: str) -> Iterator[Any]:
    """A server with a token, a short time limit, and a log for programs."""
    folder = tmp_path_factory.mktemp("strict")
    (folder / "token").write_text("secret-123\n")
    arguments = ["--token-file", folder / "token", "--timeout", "0.5", "--log", "json", "--max-batch", "1"]
    with serving(folder, runs / "small", *arguments, python=warm_python) as server:
        yield server


TOKEN = {"authorization": "Bearer secret-123"}


def test_slow_bodies_and_slow_headers_end(strict: Any) -> None:
    slow_body, slow_head, silent = (socket.create_connection(("127.0.0.1", strict.port), 60) for _ in range(3))
    head = b"POST /v1/models/small:predict HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret-123\r\n"
    slow_body.sendall(head + b"Content-Length: 100\r\n\r\n{")
    slow_head.sendall(head)
    for connection in (slow_body, slow_head, silent):
        answer = b"".join(iter(lambda c=connection: c.recv(1000), b""))
        assert answer.startswith(b"HTTP/1.1 408 ")
        connection.close()
    assert strict.ask("/v2/health/live").status == 200
    until(lambda: strict.log.read_text().count('"status": 408') == 3)
    lines = [json.loads(line) for line in strict.log.read_text().splitlines() if '"status": 408' in line]
    assert sorted(line["path"] for line in lines) == ["", "", "/v1/models/small:predict"]
    assert all(0.4 < line["seconds"] < LONG for line in lines)


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/openapi.json", "/v1/models", "/v1/models/small", "/v2/health/ready", "/v2/models/small"]
)
def test_head_is_answered_like_get_without_a_body(server: Any, path: str) -> None:
    answer, head = server.ask(path), server.ask(path, method="HEAD")
    assert (head.status, head.body, head.headers["content-type"]) == (200, b"", answer.headers["content-type"])
    if path != "/metrics":  # other numbers
        assert head.headers["content-length"] == str(len(answer.body))


def test_what_computes_takes_no_head(server: Any) -> None:
    head = server.ask("/v1/models/small:predict", method="HEAD")
    assert (head.status, head.headers["allow"], head.body) == (405, "POST", b"")
    assert server.ask("/v1/models/small", {}).headers["allow"] == "GET, HEAD"


def test_a_token(strict: Any) -> None:
    for header in ("", "Bearer secret-12", "secret-123", "Basic secret-123", "Bearer secret-1234", "Bearer"):
        headers = {"authorization": header} if header else {}
        answer = strict.ask("/v1/models/small:predict", {"instances": [ROW]}, headers)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert "Authorization: Bearer" in answer.error
    for scheme in ("Bearer", "bearer", "BEARER"):  # RFC 9110: without case
        headers = {"authorization": f"{scheme} secret-123"}
        assert strict.ask("/v1/models/small:predict", {"instances": [ROW]}, headers).status == 200
    assert strict.ask("/metrics").status == 401
    assert strict.ask("/v2/health/ready").status == 200
    assert "secret" not in strict.log.read_text()


def test_logs_for_programs(strict: Any) -> None:
    strict.ask("/v1/models/small:predict", {"instances": [ROW, ROW]}, TOKEN)
    strict.ask("/v1/models/small:predict", {"instances": []}, TOKEN)
    assert strict.stop() == 0
    good, bad = [json.loads(line) for line in strict.log.read_text().splitlines()][-2:]
    assert (good["status"], good["model"], good["version"], good["examples"]) == (200, "small", "1", 2)
    assert (good["method"], good["path"], good["client"]) == ("POST", "/v1/models/small:predict", "127.0.0.1")
    assert good["received"] == len(json.dumps({"instances": [ROW, ROW]}))
    assert 0 < good["seconds"] < 60
    assert (bad["status"], bad["error"]) == (400, "`instances` is not a list with at least one example.")


def test_metrics(server: Any) -> None:
    def count(line: str) -> float:
        text = server.ask("/metrics").body.decode()
        return sum(float(each.rpartition(" ")[2]) for each in text.splitlines() if each.startswith(line))

    labels = 'model="small",version="1"'
    names = {
        'rudel_requests_total{model="small",route="classify",status="200",version="1"}': 1,
        'rudel_requests_total{model="small",route="classify",status="400",version="1"}': 1,
        'rudel_request_seconds_count{model="small",route="classify",version="1"}': 2,
        f"rudel_batch_examples_sum{{{labels}}}": 3,
    }
    before = {name: count(name) for name in names}
    server.ask("/v1/models/small:classify", {"instances": [ROW] * 3})
    server.ask("/v1/models/small:classify", {"instances": [[1]]})
    assert {name: count(name) - before[name] for name in names} == names
    assert count("process_resident_memory_bytes") > 1e6
    assert count(f"rudel_requests_waiting{{{labels}}}") == 0


def test_metrics_are_read_by_prometheus_own_parsers(server: Any) -> None:
    server.ask("/v1/models/small:classify", {"instances": [ROW]})
    plain = server.ask("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    wanted = {"rudel_requests", "rudel_request_seconds", "rudel_batch_examples", "rudel_batch_seconds"}
    wanted |= {"rudel_requests_waiting", "process_start_time_seconds", "process_resident_memory_bytes"}
    assert wanted <= {family.name for family in text_string_to_metric_families(plain.body.decode())}
    other = server.ask("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert other.headers["content-type"].startswith("application/openmetrics-text")
    assert wanted <= {family.name for family in openmetrics(other.body.decode())}


@pytest.mark.parametrize("accept", ["application/openmetrics-text; version=abc", "text/plain; version=x;q=y", "; ;"])
def test_metrics_are_plain_for_who_asks_for_nothing_that_there_is(server: Any, accept: str) -> None:
    answer = server.ask("/metrics", headers={"accept": accept})
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/plain")


def test_requests_of_http_1_0_need_no_host(server: Any) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.0\r\n\r\n")
        assert b"".join(iter(lambda: connection.recv(1000), b"")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "localhost.evil.example", "192.0.2.1"])
def test_a_name_that_is_not_this_computers_is_refused(server: Any, host: str) -> None:
    """DNS rebinding: a web site lets its name stand for 127.0.0.1."""
    for path in ("/v1/models/small", "/metrics", "/v2/health/live"):
        answer = server.ask(path, headers={"host": host})
        assert (answer.status, "--allow-host" in answer.error) == (403, True)
    assert server.ask("/v1/models/small:predict", {"instances": [ROW]}, {"host": host}).status == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8501", "127.0.0.1:1", "127.8.9.1", "[::1]:8501", "[::1]"])
def test_this_computers_names_are_answered(server: Any, host: str) -> None:
    assert server.ask("/v1/models/small", headers={"host": host}).status == 200


def test_the_name_of_a_proxy_can_be_allowed(start: Any, runs: Path) -> None:
    server = start(runs / "small", "--max-batch", "1", "--allow-host", "models.example")
    asked = {host: server.ask("/", headers={"host": host}).status for host in ("Models.example:443", "evil.example")}
    assert asked == {"Models.example:443": 200, "evil.example": 403}


def test_the_front_page_leads_on(server: Any) -> None:
    front = server.ask("/").json
    assert front["models"] == {name: ["1"] for name in ("digits", "pairs", "quick", "small")}
    assert server.ask(front["openapi"]).json["openapi"].startswith("3.1")


def test_requests_one_behind_the_other_without_waiting(server: Any) -> None:
    """Pipelining: answers come in order."""
    bodies = [json.dumps({"instances": [ROW] * n}).encode() for n in (1, 2, 3)]
    head = b"POST /v1/models/small:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        connection.sendall(b"".join(head % len(body) + body for body in bodies))
        counts = []
        with connection.makefile("rb") as file:
            for _ in bodies:
                assert file.readline().startswith(b"HTTP/1.1 200")
                headers = dict(line.split(b": ") for line in iter(file.readline, b"\r\n"))
                counts.append(len(json.loads(file.read(int(headers[b"content-length"])))["predictions"]))
    assert counts == [1, 2, 3]


def test_what_follows_a_request_that_ends_the_connection_does_not_hinder_its_answer(server: Any) -> None:
    body = json.dumps({"instances": [ROW]}).encode()
    head = b"%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    request = head % (b"POST /v1/models/small:predict", len(body)) + body
    with socket.create_connection(("127.0.0.1", server.port), LONG) as connection:
        connection.sendall(request + head % (b"GET /", 0))
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


OFFER = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAEAAEAAAAIAAAAB"}


@pytest.mark.parametrize("chunked", [False, True])
def test_clients_that_offer_http_2_are_answered_by_http_1_1(server: Any, chunked: bool) -> None:
    """As Java's HttpClient and `curl --http2` do with their first request on a connection."""
    connection = server.connect()
    for headers in (OFFER, {}, OFFER | {"x-more": "1"}):
        body = json.dumps({"instances": [ROW, ROW]}).encode()
        given = iter([body[:9], body[9:]]) if chunked else body
        connection.request("POST", "/v1/models/small:predict", given, headers, encode_chunked=chunked)
        answer = connection.getresponse()
        predictions = json.loads(answer.read())["predictions"]
        assert (answer.status, answer.version, len(predictions)) == (200, 11, 2)
    connection.request("GET", "/v1/models", headers=OFFER)
    assert connection.getresponse().status == 200
    connection.close()


def test_a_tunnel_is_refused(server: Any) -> None:
    answer = server.ask("example.com:443", headers={"connection": "upgrade", "upgrade": "x"}, method="CONNECT")
    assert (answer.status, answer.error) == (400, "This is no request of HTTP/1.1.")
