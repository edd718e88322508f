import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from watch_support import Served, Training

Begin = Callable[..., Training]
Serve = Callable[..., Served]


def test_the_page_and_all_it_refers_to_is_there(tmp_path: Path, served: Serve) -> None:
    page = served(tmp_path / "run")
    status, headers, content = page.get("/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    for name in ("page.js", "run.js", "report.css", "page.css"):
        status, headers, _ = page.get(f"/page/{name}")
        assert status == 200
        assert headers["content-type"].startswith(("text/javascript", "text/css"))
    assert b"<script>" not in content
    assert b"style=" not in content


def test_nothing_but_the_page_itself_may_run_or_be_asked(tmp_path: Path, served: Serve) -> None:
    page = served(tmp_path / "run")
    for path in ("/", "/page/page.js", "/runs", "/nothing"):
        headers = page.get(path)[1]
        if path != "/nothing":
            assert "default-src 'none'; script-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"


def test_what_has_not_changed_is_not_sent_again(training: Begin, served: Serve) -> None:
    run = training().begin().epochs(1)
    page = served(run.path)
    status, headers, _ = page.get("/runs")
    assert status == 200
    status, again, content = page.get("/runs", if_none_match=headers["etag"])
    assert (status, again["etag"], content) == (304, headers["etag"], b"")
    run.epochs(2)

    def new() -> bool:
        return page.get("/runs", if_none_match=headers["etag"])[0] == 200

    while not new():  # it looks twice a second
        pass
    assert page.runs()[0]["step"] == 20


def test_events_come_as_the_training_goes_on(tmp_path: Path, training: Begin, served: Serve) -> None:
    page = served(tmp_path / "run")
    with page.events() as events:
        assert next(events)["runs"][0]["state"] == "waiting"
        run = training().begin().epochs(1)
        while (state := next(events)["runs"][0])["step"] == 0:
            assert state["state"] in ("waiting", "starting")
        assert (state["state"], state["step"]) == ("running", 10)
        run.epochs(2)
        assert next(events)["runs"][0]["step"] == 20
        run.stop()
        shutil.rmtree(run.path)
        assert next(events)["runs"][0]["state"] == "waiting"


def test_a_server_that_ends_says_so_to_those_who_listen(tmp_path: Path, served: Serve) -> None:
    page = served(tmp_path / "run")
    with page.events() as events:
        next(events)
        page.end()
        assert list(events) == []


def test_several_runs(tmp_path: Path, training: Begin, served: Serve) -> None:
    training(tmp_path / "a").begin().epochs(1)
    training(tmp_path / "b").begin(recipe="sine")
    assert [(run["title"], run["state"]) for run in served(tmp_path / "a", tmp_path / "b").runs()] == [
        ("digits", "running"),
        ("sine", "starting"),
    ]


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path, served: Serve) -> None:
    runs = served(tmp_path / "laptop/digits", tmp_path / "gpu/digits").runs()
    assert [run["name"] for run in runs] == ["laptop/digits", "gpu/digits"]


def test_the_report_when_there_is_one(tmp_path: Path, training: Begin, served: Serve) -> None:
    run = training().begin().epochs(1)
    page = served(run.path)
    status, _, content = page.get("/runs/0/report")
    assert status == 404
    assert b"when the training ends" in content
    run.end()
    status, headers, content = page.get("/runs/0/report")
    assert status == 200
    assert b"All of it." in content
    assert "script-src" not in headers["content-security-policy"]
    assert page.get("/runs/1/report")[0] == 404


@pytest.mark.parametrize(
    "path",
    ["/page/../app.py", "/page/..%2fapp.py", "/page/nothing.js", "/config.json", "/runs/-1/report", "/runs/x/report"],
)
def test_nothing_else_is_there(tmp_path: Path, served: Serve, path: str) -> None:
    assert served(tmp_path / "run").get(path)[0] == 404


def test_a_web_site_that_gives_this_computer_a_name_of_its_own_is_refused(tmp_path: Path, served: Serve) -> None:
    page = served(tmp_path / "run")
    assert page.get("/runs", host="evil.example:8488")[0] == 403
    assert page.get("/runs", host=f"localhost:{page.port}")[0] == 200
    assert page.get("/runs", host="[::1]:8488")[0] == 200


def test_the_name_of_a_proxy_can_be_allowed(tmp_path: Path) -> None:
    page = Served(tmp_path / "run", allowed=("hub.example",))
    try:
        asked = {host: page.get("/runs", host=host)[0] for host in ("Hub.example:443", "hub.example", "evil.example")}
    finally:
        page.end()
    assert asked == {"Hub.example:443": 200, "hub.example": 200, "evil.example": 403}
