"""`phalanx ui` over HTTP: what is told of runs while they grow, and what no folder and no request gets."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from urllib.parse import quote, urlencode

import hostile
import pytest
from test_compare import write_run

from phalanx import cli
from phalanx.errors import PhalanxError
from phalanx.report.metrics import MetricsWriter
from phalanx.ui import Library, Server, curves
from phalanx.ui.curves import Curves, MetricsFile


class Page:
    """What a browser asks."""

    def __init__(self, server: Server):
        self.server, self.port = server, server.server_port

    def send(self, path, method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer, body

    def ask(self, path, query=()):
        answer, body = self.send(f"{path}?{urlencode(query)}")
        assert answer.status == 200, body
        return json.loads(body)

    def runs(self):
        return {run["name"]: run for run in self.ask("/api/runs")["changed"]}

    def curve(self, run, metric, cursor=""):
        query = [("metric", metric), ("run", f"{run['id']}:{cursor}")]
        told = self.ask("/api/curves", query)[run["id"]]
        return told["points"][metric], told["cursor"], told["whole"]


@pytest.fixture
def serve():
    """Serve some folders, without waiting between two searches for runs."""
    open_servers = []

    def start(*roots: Path) -> Page:
        server = Server(Library(roots), 0)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        open_servers.append(server)
        return Page(server)

    yield start
    for server in open_servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("phalanx.ui.library.RESCAN", -1.0)


# Runs and their curves


def test_runs_are_found_and_told(serve, tmp_path):
    write_run(tmp_path / "mappo/battle/3m/one", level=0.9)
    write_run(tmp_path / "qmix/two", "qmix", status="running", seeds=2)
    page = serve(tmp_path)
    runs = page.runs()
    assert set(runs) == {"mappo/battle/3m/one", "qmix/two"}
    one = runs["mappo/battle/3m/one"]
    assert (one["algorithm"], one["env"], one["status"], one["seeds"]) == (
        "mappo",
        "battle/3m",
        "finished",
        5,
    )
    assert (one["steps"], one["budget"], one["error"], one["notes"]) == (500_000, 500_000, "", [])
    assert one["final"]["win_rate"] == pytest.approx(0.9, abs=0.05)
    assert "eval/win_rate" in one["metrics"]
    mean, low, high = one["last"]["eval/win_rate"]
    assert low < mean < high


def test_only_what_changed_is_told_again(serve, tmp_path):
    one, other = write_run(tmp_path / "one"), write_run(tmp_path / "other", first=5)
    page = serve(tmp_path)
    first = page.ask("/api/runs")
    assert page.ask("/api/runs", {"since": first["version"]})["changed"] == []
    (one / "metrics.jsonl").write_text(
        (one / "metrics.jsonl").read_text() + '{"seed":0,"env_steps":9000000}\n'
    )
    again = page.ask("/api/runs", {"since": first["version"]})
    assert [run["name"] for run in again["changed"]] == ["one"]
    assert len(again["ids"]) == 2
    for file in other.iterdir():
        file.unlink()
    other.rmdir()
    assert page.ask("/api/runs", {"since": again["version"]})["ids"] == [again["changed"][0]["id"]]


def test_a_curve_is_the_mean_and_the_range_over_seeds(serve, tmp_path):
    folder = write_run(tmp_path / "run")
    page = serve(tmp_path)
    points, _, whole = page.curve(page.runs()["run"], "eval/return")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert whole
    assert len(points) == 11
    for step, mean, low, high in points:
        values = [row["eval/return"] for row in rows if row["env_steps"] == step]
        assert mean == pytest.approx(sum(values) / len(values), rel=1e-5, abs=1e-9)
        assert (low, high) == pytest.approx((min(values), max(values)), rel=1e-5)


def test_a_growing_file_is_read_from_where_it_was_left(serve, tmp_path):
    folder = write_run(tmp_path / "run", seeds=1)
    (folder / "metrics.jsonl").write_text("")
    writer, page = MetricsWriter(folder), serve(tmp_path)

    def row(step, value):
        return {"seed": 0, "env_steps": step, "eval/return": value}

    writer.write([row(10, 1.0), row(20, 2.0)])
    run = page.runs()["run"]
    points, cursor, whole = page.curve(run, "eval/return")
    assert (points, whole) == ([[10, 1, 1, 1], [20, 2, 2, 2]], True)
    line = json.dumps(row(30, 3.0))
    with writer.path.open("a") as file:
        file.write(line[:17])
    page.runs()
    assert page.curve(run, "eval/return", cursor) == ([], cursor, False), "half a line waits"
    assert page.runs()["run"]["notes"] == []
    with writer.path.open("a") as file:
        file.write(line[17:] + "\n")
    page.runs()
    points, later, whole = page.curve(run, "eval/return", cursor)
    assert (points, whole) == ([[30, 3, 3, 3]], False), "only what is new"
    # A resumed run cuts the file and writes on.
    size = len((json.dumps(row(10, 1.0)) + "\n").encode())
    writer.rewind(size)
    writer.write([row(20, 7.0), row(30, 8.0), row(40, 9.0)])
    page.runs()
    points, _, whole = page.curve(run, "eval/return", later)
    assert (points, whole) == ([[10, 1, 1, 1], [20, 7, 7, 7], [30, 8, 8, 8], [40, 9, 9, 9]], True)


def test_values_that_are_not_finite_are_gaps_and_are_said(serve, tmp_path):
    folder = write_run(tmp_path / "run", seeds=1)
    rows = [(1, "1.0"), (2, "NaN"), (3, "Infinity"), (4, "1e999"), (5, "null"), (6, '"six"'), (7, "7")]
    text = "".join(f'{{"seed": 0, "env_steps": {step}, "eval/return": {value}}}\n' for step, value in rows)
    (folder / "metrics.jsonl").write_text(text)
    page = serve(tmp_path)
    run = page.runs()["run"]
    none = [None, None, None]
    assert page.curve(run, "eval/return")[0] == [
        [1, 1, 1, 1],
        [2, *none],
        [3, *none],
        [4, *none],
        [7, 7, 7, 7],
    ]
    assert run["notes"] == ["3 values of eval/return are not finite"]


def test_a_point_of_a_long_curve_stands_for_its_neighbours():
    found = Curves()
    for step in range(20_000):
        found.add({"seed": 0, "env_steps": step, "x": float(step % 7), "rare": 1.0} if step == 5 else
                  {"seed": 0, "env_steps": step, "x": float(step % 7)})  # fmt: skip
    assert curves.MOST / 8 < len(found.ends) <= curves.MOST
    counted = [point["x"] for point in found.values]
    assert sum(count for count, *_ in counted) == 20_000
    assert sum(total for _, total, *_ in counted) == sum(step % 7 for step in range(20_000))
    widths = [end - start for start, end in zip(found.starts, found.ends, strict=True)]
    assert max(widths) < 5 * 20_000 / curves.MOST, "as fine at the beginning as at the end"
    assert len(found.points("rare")) == 1
    assert found.last("x") == [19_999 % 7] * 3


@pytest.mark.parametrize("order", ["seeds apart", "backwards"])
def test_rows_may_come_in_any_order(order):
    rows = [{"seed": s, "env_steps": 10 * t, "x": float(t + s)} for s in (0, 2) for t in range(3000)]
    found = Curves()
    for row in rows if order == "seeds apart" else reversed(rows):
        found.add(row)
    assert len(found.ends) <= curves.MOST
    assert sum(point["x"][0] for point in found.values) == len(rows)
    assert all(end < start for end, start in zip(found.ends[:-1], found.starts[1:], strict=True))
    step, mean, low, high = found.points("x")[-1]
    assert step == 29_990
    assert low < mean < high == 3001


def test_a_huge_file_takes_little_memory_and_never_long_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "BLOCK", 1 << 14)
    count = 10_000
    with (tmp_path / "metrics.jsonl").open("w") as file:
        for step in range(count):
            file.write(f'{{"seed": 0, "env_steps": {step}, "a": {step % 10}.5, "b": 1.0, "c": 2e-3}}\n')
    found = MetricsFile(tmp_path)
    tracemalloc.start()
    began = time.monotonic()
    found.refresh(began)  # one block
    assert 0 < found.unread < 1
    while found.unread:
        found.refresh(time.monotonic() + 60)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.curves.rows == count
    assert held < 2_000_000


def test_too_many_metrics_and_too_long_lines_are_said(tmp_path):
    wide = {"seed": 0, "env_steps": 1} | {f"m{i}": 1.0 for i in range(curves.NAMES + 5)}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(wide) + "\n" + "x" * (curves.BLOCK + 5) + "\n")
    found = MetricsFile(tmp_path)
    found.refresh(time.monotonic() + 60)
    found.refresh(time.monotonic() + 60)
    assert len(found.curves.names) == curves.NAMES
    assert list(found.notes()) == [
        "line 2 of metrics.jsonl is too long: what follows is not read",
        f"only {curves.NAMES} metrics are shown",
    ]


# Options, details, comparisons, replays


def test_options_that_differ_are_told(serve, tmp_path):
    write_run(tmp_path / "a", lr=1e-3)
    write_run(tmp_path / "b", share="agent")
    page = serve(tmp_path)
    runs = page.runs()
    query = [("run", runs[name]["id"]) for name in ("a", "b")]
    told = page.ask("/api/options", query)
    assert {row["option"]: row["values"] for row in told["options"]} == {
        "algorithm.lr": [0.001, 0.0005],
        "algorithm.share": [None, "agent"],
    }
    everything = page.ask("/api/options", [*query, ("all", "yes")])["options"]
    assert {"option": "run.env", "differs": False, "values": ["battle/3m"] * 2} in everything


def test_a_run_is_told_in_detail(serve, tmp_path):
    write_run(tmp_path / "a", seeds=2)
    page = serve(tmp_path)
    told = page.ask("/api/run", {"run": page.runs()["a"]["id"]})
    assert told["facts"]["git"] == "abc1234"
    assert told["config"]["run"]["steps"] == 500_000
    assert [row["seed"] for row in told["final_seeds"]] == [0, 1]
    assert [row["env_steps"] for row in told["latest"]] == [500_000, 500_000]


def test_runs_are_compared_as_the_command_does(serve, tmp_path):
    write_run(tmp_path / "a", level=0.9)
    write_run(tmp_path / "b", "ippo", level=0.5)
    write_run(tmp_path / "c", "qmix", status="running")
    page = serve(tmp_path)
    runs = page.runs()
    answer, body = page.send("/report?" + urlencode([("run", runs[name]["id"]) for name in "ab"]))
    assert "mappo is better than ippo" in body
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("sandbox; default-src 'none'")
    assert "script" not in policy
    _, body = page.send("/report?" + urlencode([("run", runs[name]["id"]) for name in "ac"]))
    assert "These runs cannot be compared" in body
    assert "is not finished" in body
    steps = [("run", runs[name]["id"]) for name in "ac"] + [("steps", "300000")]
    assert "cannot be" not in page.send("/report?" + urlencode(steps))[1].split("</style>")[1][:300]
    for wrong in ("-1", "x", "1e400", "<script>"):
        _, body = page.send("/report?" + urlencode([*steps[:2], ("steps", wrong)]))
        assert "cannot be compared: env steps must be" in body
        assert "<script" not in body


def test_a_replay_is_rebuilt_and_nothing_of_the_file_runs(serve, small_run, tmp_path):
    import phalanx

    run = write_run(tmp_path / "run")
    (file,) = phalanx.watch(small_run.folder, episodes=1, out=run / "watch.html")
    sound = file.read_text()
    (run / "evil.html").write_text(sound.replace("<body>", "<body><script>document.title='owned'</script>"))
    (run / "sub").mkdir()
    (run / "sub" / "watch.html").write_text(sound)
    (run / "notes.html").write_text("<script>document.title='owned'</script>")
    before = '<script id="data" type="text/plain">'
    (run / "junk.html").write_text(before + "AAAA</script>")
    page = serve(tmp_path)
    told = page.runs()["run"]
    assert told["replays"] == ["evil.html", "junk.html", "watch.html"]

    def replay(name):
        return page.send("/replay?" + urlencode({"run": told["id"], "file": name}))

    answer, body = replay("watch.html")
    assert body == sound, "the page is made by the code that made the file"
    assert replay("evil.html")[1] == sound
    policy = answer.headers["Content-Security-Policy"]
    assert "sandbox allow-scripts" in policy
    assert "unsafe" not in policy
    assert len(re.findall("'sha256-", policy)) == 2
    for name in (
        "junk.html",
        "notes.html",
        "sub/watch.html",
        "../o/watch.html",
        "/etc/passwd",
        "",
        "run.json",
    ):
        answer, body = replay(name)
        assert answer.status == 404
        assert "This replay cannot be shown" in body


# Requests that get nothing


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/ui/../index.html", "/run.json", "//etc/passwd",
     "/api/../../x", "/%00", "/.", "/favicon.ico", "/api", "/page/index.html", "/ui.js/",
     "/" + quote("<script>"), "/api/runs/..%2f..%2fetc%2fpasswd"],
)  # fmt: skip
def test_no_path_leads_to_a_file(serve, tmp_path, path):
    answer, body = serve(tmp_path).send(path)
    assert (answer.status, json.loads(body)) == (404, {"error": "there is no such page"})


def test_ids_and_cursors_that_are_none_get_nothing(serve, tmp_path):
    write_run(tmp_path / "a")
    page = serve(tmp_path)
    run = page.runs()["a"]
    for wrong in ("../a", str(tmp_path / "a"), "a", "%2e%2e", "\x00", "é", "1" * 5000):
        query = urlencode({"run": wrong})
        assert page.send(f"/api/run?{query}")[0].status == 404
        assert page.send(f"/replay?{query}")[0].status == 404
        assert page.ask("/api/options", {"run": wrong})["ids"] == []
        points, _, whole = page.curve(run, "eval/return", wrong)
        assert whole
        assert len(points) == 11
        assert len(page.ask("/api/runs", {"since": wrong})["changed"]) == 1
    assert page.curve(run, wrong)[0] == []
    assert page.send("/api/curves?" + "&".join(["metric=x"] * 5000))[0].status == 400


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{}", "127.0.0.1", "127.0.0.1:1", "localhost.evil:{}", "127.0.0.1:{}.evil",
     "", "[::1]:{}"],
)  # fmt: skip
def test_a_foreign_host_is_refused(serve, tmp_path, host):
    write_run(tmp_path / "a")
    page = serve(tmp_path)
    for path in ("/", "/api/runs", "/ui.js"):
        answer, body = page.send(path, Host=host.format(page.port))
        assert answer.status == 403
        assert "mappo" not in body
    assert page.send("/", Host=f"localhost:{page.port}")[0].status == 200


def test_two_hosts_or_none_are_refused(serve, tmp_path):
    page = serve(tmp_path)
    for lines in ("", f"Host: 127.0.0.1:{page.port}\r\nHost: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", page.port), timeout=30) as connection:
            connection.sendall(f"GET / HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
            assert b" 403 " in connection.recv(4096)


def test_parts_of_foreign_pages_are_refused(serve, tmp_path):
    page = serve(tmp_path)
    asked = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}
    assert page.send("/api/runs", **asked)[0].status == 403
    assert page.send("/", **asked | {"Sec_Fetch_Mode": "navigate"})[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_is_written(serve, tmp_path, method):
    assert serve(tmp_path).send("/api/runs", method)[0].status == 405


def test_only_this_machine_is_served_and_pages_take_nothing_from_elsewhere(serve, tmp_path):
    page = serve(tmp_path)
    assert page.server.server_address[0] == "127.0.0.1"
    for path in ("/", "/ui.js", "/views.js", "/chart.js", "/ui.css", "/api/runs", "/nothing"):
        answer, body = page.send(path)
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", body)
        assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", body)
    answer, body = page.send("/", "HEAD")
    assert (answer.status, body) == (200, "")


# Folders that get nothing


@pytest.mark.parametrize("kind", hostile.BROKEN)
def test_a_broken_run_is_listed_with_a_line_and_the_others_go_on(serve, tmp_path, kind):
    hostile.BROKEN[kind](tmp_path / "broken")
    write_run(tmp_path / "sound")
    page = serve(tmp_path)
    runs = page.runs()
    assert runs["sound"]["error"] == ""
    query = [("run", run["id"]) for run in runs.values()]
    page.ask("/api/options", [*query, ("all", "yes")])
    page.ask("/api/run", query[:1])
    page.ask("/api/run", query[1:])
    page.ask("/api/curves", [*query, ("metric", "eval/return")])
    assert page.send("/report?" + urlencode(query))[0].status == 200
    told = runs["broken"]
    if kind.split()[0] in ("json", "config", "binary") and "metrics" not in kind:
        assert "\n" not in told["error"]
        assert str(tmp_path / "broken") in told["error"]
    elif "metrics" in kind or "rows" in kind:
        assert "not rows of metrics, the first is line 1" in told["notes"][0]


def test_links_out_of_a_folder_are_refused(serve, tmp_path):
    elsewhere = hostile.outside(tmp_path / "elsewhere")
    runs = tmp_path / "runs"
    for name in ("run.json", "config.toml", "metrics.jsonl", "watch.html"):
        hostile.linked(runs / name.partition(".")[0], elsewhere, name)
    (runs / "folder").symlink_to(elsewhere)
    (runs / "loop").symlink_to(runs / "loop")
    (runs / "config" / "self.html").symlink_to("self.html")
    (runs / "deep" / "run").mkdir(parents=True)
    (runs / "deep" / "run" / "run.json").symlink_to("../../../elsewhere/run.json")
    page = serve(runs)
    answer, body = page.send("/api/runs")
    told = {run["name"]: run for run in json.loads(body)["changed"]}
    for name in ("run", "config", "deep/run", "folder"):
        assert "is a link out of its folder" in told[name]["error"]
    assert "is a link out of its folder" in told["metrics"]["notes"][0]
    assert told["watch"]["replays"] == []
    for run in told.values():
        body += page.send("/api/run?" + urlencode({"run": run["id"]}))[1]
        body += page.send("/replay?" + urlencode({"run": run["id"], "file": "watch.html"}))[1]
    body += page.send("/api/options?" + urlencode([("run", run["id"]) for run in told.values()]))[1]
    assert hostile.SECRET not in body
    assert answer.status == 200


def test_pipes_and_folders_in_place_of_files_do_not_hang(serve, tmp_path):
    for name in ("run.json", "metrics.jsonl"):
        folder = write_run(tmp_path / name.partition(".")[0])
        (folder / name).unlink()
        os.mkfifo(folder / name)
    (tmp_path / "odd" / "run.json").mkdir(parents=True)
    runs = serve(tmp_path).runs()
    assert "is not a plain file" in runs["run"]["error"]
    assert "is not a plain file" in runs["metrics"]["notes"][0]
    assert "is not a plain file" in runs["odd"]["error"]


def test_names_are_told_as_they_are(serve, tmp_path):
    name = hostile.SCRIPT.replace("/", "\\")
    hostile.names(tmp_path / name)
    (tmp_path / os.fsdecode(b"\xff\xfe bytes")).mkdir()
    (tmp_path / os.fsdecode(b"\xff\xfe bytes") / "run.json").write_text("{}")
    (tmp_path / "x..%2f..%2fetc").mkdir()
    (tmp_path / "x..%2f..%2fetc" / "config.toml").write_text("[run]\nsteps = [1, 2]\n")
    page = serve(tmp_path)
    runs = page.runs()
    assert len(runs) == 3
    _, body = page.send("/report?" + urlencode([("run", run["id"]) for run in runs.values()]))
    assert "cannot be compared" in body
    assert "<script" not in body
    assert "<img" not in body
    told = page.ask("/api/run", {"run": runs[name]["id"]})
    assert told["facts"]["device"] == hostile.SCRIPT


def test_files_that_are_too_large_are_refused(serve, tmp_path, monkeypatch):
    monkeypatch.setattr("phalanx.report.folder.MOST", 1000)
    hostile.changed(tmp_path / "a", "config.toml", "[run]\n" + "# long\n" * 500)
    assert "has more than 0 MB: it is not read" in serve(tmp_path).runs()["a"]["error"]


def test_more_runs_than_can_be_shown_are_said(serve, tmp_path, monkeypatch):
    monkeypatch.setattr("phalanx.ui.library.MOST_RUNS", 3)
    for i in range(5):
        (tmp_path / str(i)).mkdir()
        (tmp_path / str(i) / "run.json").write_text("{}")
    told = serve(tmp_path).ask("/api/runs")
    assert len(told["ids"]) == 3
    assert told["notes"] == ["only 3 runs are shown: name the folders you want to see"]


# The command


def test_the_command_refuses_in_a_line(tmp_path, monkeypatch):
    with pytest.raises(PhalanxError, match="there is no run folder nowhere"):
        cli.run(["ui", "nowhere"])
    with pytest.raises(PhalanxError, match="--port must be at most 65535"):
        cli.run(["ui", "--port", "70000"])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(PhalanxError, match=f"cannot use port {port}: .*give another --port"):
            cli.run(["ui", str(tmp_path), "--port", port])


def test_ctrl_c_ends_it_with_a_line(tmp_path):
    write_run(tmp_path / "results" / "a")
    words = [sys.executable, "-m", "phalanx", "ui", "--port", "0"]
    root = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": str(root)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = int(re.match(r"http://127\.0\.0\.1:(\d+)/  \(Ctrl-C ends it\)", line)[1])  # pyright: ignore
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/api/runs")
        assert b'"name":"a"' in connection.getresponse().read()
        process.send_signal(signal.SIGINT)  # while the connection is open
        try:
            out, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out, said) == (0, "the page is closed\n", "")
