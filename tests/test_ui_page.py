"""The page of `phalanx ui` in a real browser: live, by day and by night, at a desk and on a phone."""

import json
import threading

import hostile
import pytest
from test_compare import write_run
from test_watch import chromium  # noqa: F401

import phalanx
from phalanx.report.metrics import MetricsWriter
from phalanx.ui import Library, Server


@pytest.fixture
def serve():
    """Serve a folder; gives the address."""
    servers = []

    def start(root):
        server = Server(Library([root]), 0)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return server.address

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def page(chromium):  # noqa: F811
    chromium.complaints.clear()
    chromium.resize(1280, 860)
    yield chromium
    chromium.call("Page.navigate", url="about:blank")
    chromium.home = ("file:", "data:", "blob:")
    chromium.complaints.clear()


def points(page, metric):
    """Number of points in a chart."""
    return f"Number(document.querySelector('[aria-label=\"{metric}\"]')?.dataset.points)"


def row(step, value):
    return {"seed": 0, "env_steps": step, "eval/return": value}


def test_curves_grow_while_a_run_goes_on(page, serve, tmp_path):
    folder = write_run(tmp_path / "mappo" / "live", seeds=1, status="running")
    (folder / "metrics.jsonl").write_text("")
    writer = MetricsWriter(folder)
    writer.write([row(50_000, 1.0), row(100_000, 2.0)])
    page.open(serve(tmp_path))
    page.until(f"{points(page, 'eval/return')} === 2")
    assert page.text("#pulse") == "1 running"
    assert "running, 20 %" in page.text("#runs")
    writer.write([row(150_000, 3.0)])
    page.until(f"{points(page, 'eval/return')} === 3")
    assert "running, 30 %" in page.text("#runs")
    for i in range(4, 11):
        writer.write([row(50_000 * i, float(i))])
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(facts | {"status": "finished"}))
    page.until(f"{points(page, 'eval/return')} === 10")
    page.until("document.querySelector('#runs').innerText.includes('finished')")
    # A run that begins later appears by itself.
    write_run(tmp_path / "qmix" / "later", "qmix")
    page.until("document.querySelectorAll('#runs li').length === 2")
    assert page.complaints == []


def test_every_view_at_a_desk_and_on_a_phone_by_day_and_by_night(page, serve, tmp_path):
    for algorithm, level in (("mappo", 0.9), ("ippo", 0.5)):
        write_run(tmp_path / algorithm, algorithm, level=level)
    address = serve(tmp_path)
    for width, phone in ((1280, False), (390, True)):
        papers = set()
        for dark in (False, True):
            page.resize(width, 844, dark=dark, phone=phone)
            for view, words in {
                "curves": "eval/win_rate",
                "table": "final win rate",
                "options": "run.algorithm",
                "compare": "phalanx compare",
                "replays": "phalanx watch",
                "run": "abc1234",
            }.items():
                page.open(address, f"#view={view}")
                page.until(f"document.querySelector('#view').innerText.includes({json.dumps(words)})")
                assert page.ask("document.documentElement.scrollWidth") <= width
                assert page.text("[aria-selected=true]") == view
            papers.add(page.ask("getComputedStyle(document.body).backgroundColor"))
        assert len(papers) == 2
    assert page.complaints == []


def test_runs_are_chosen_and_metrics_are_found(page, serve, tmp_path):
    for algorithm in ("mappo", "ippo", "qmix"):
        write_run(tmp_path / algorithm, algorithm)
    address = serve(tmp_path)
    page.open(address)
    page.until(f"{points(page, 'eval/return')} === 33")
    assert page.text("#count") == "3 of 3 chosen"
    page.click("#runs li:first-child input")
    page.until(f"{points(page, 'eval/return')} === 22")
    page.click("#none")
    page.until("document.querySelector('#view').innerText.includes('Choose runs')")
    page.ask("document.querySelector('#filter').value = 'qmix'")
    page.ask("document.querySelector('#filter').dispatchEvent(new Event('input'))")
    assert page.ask("document.querySelectorAll('#runs li').length") == 1
    page.click("#all")
    page.until(f"{points(page, 'eval/return')} === 11")
    page.ask("[...document.querySelectorAll('.group button')].find(b => b.innerText === 'train').click()")
    page.until(f"{points(page, 'train/return')} === 10")
    assert page.ask("document.querySelectorAll('figure').length") == 2
    # A reload shows the same.
    after = page.ask("location.hash")
    page.open(address, after)
    page.until(f"{points(page, 'train/return')} === 10")
    assert page.text("#count") == "1 of 3 chosen"
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=700, y=260)
    page.until("!!document.querySelector('.tip:not([hidden])')")
    assert "qmix battle/3m" in page.text(".tip:not([hidden])")
    assert page.complaints == []


def test_a_comparison_in_the_page(page, serve, tmp_path):
    for algorithm, level in (("mappo", 0.9), ("ippo", 0.5)):
        write_run(tmp_path / algorithm, algorithm, level=level)
    page.open(serve(tmp_path), "#view=compare")
    page.until("!document.querySelector('.go').disabled")
    page.click(".go")
    page.until("!!document.querySelector('iframe') && !document.querySelector('#view p.quiet')")
    with page.frame():
        page.until("document.body.innerText.includes('mappo is better than ippo')")
        assert page.ask("document.querySelectorAll('figure svg').length") > 3
    assert page.complaints == []


def test_a_replay_plays_in_the_page(page, serve, small_run, tmp_path):
    run = write_run(tmp_path / "run")
    phalanx.watch(small_run.folder, episodes=2, out=run / "watch.html")
    page.open(serve(tmp_path), "#view=replays")
    page.until("!!document.querySelector('iframe')")
    with page.frame():
        page.until("document.documentElement?.dataset.ready === 'yes'")
        assert "agent_0" in page.text("#agents")
        page.click("#forth")
        page.until("document.querySelector('#step').innerText.startsWith('step 1')")
        assert page.ask("self.origin") == "null", "it can ask nothing of the page"
    assert page.complaints == []


def test_nothing_of_a_hostile_folder_runs(page, serve, tmp_path):
    name = hostile.SCRIPT.replace("/", "\\")
    hostile.names(tmp_path / name)
    hostile.facts_with(tmp_path / "failed", status=f"failed: {hostile.SCRIPT}")
    elsewhere = hostile.outside(tmp_path.parent / f"{tmp_path.name}-elsewhere")
    hostile.linked(tmp_path / "linked", elsewhere, "config.toml", "metrics.jsonl")
    for kind, make in hostile.BROKEN.items():
        make(tmp_path / "broken" / f"{kind} {name}")
    address = serve(tmp_path)
    page.open(address)
    page.click("#all")
    for view in ("curves", "table", "options", "compare", "replays", "run"):
        page.click(f"[data-view={view}]")
        page.until(f"document.querySelector('[aria-selected=true]').innerText === '{view}'")
        if view == "curves":
            page.ask(
                "[...document.querySelectorAll('.group button')].find(b => b.innerText === 'all').click()"
            )
            page.until("document.querySelectorAll('figure svg[data-points]').length > 5")
        if view == "options":
            page.until("!!document.querySelector('table')")
        if view == "compare":
            page.click(".go")
            page.until("!!document.querySelector('iframe') && !document.querySelector('#view p.quiet')")
            with page.frame():
                page.until("document.body.innerText.includes('cannot be compared')")
    for i in range(4):
        page.ask(f"document.querySelectorAll('#runs .entry')[{i}].click()")
        page.until("!!document.querySelector('#view h2')")
    shown = page.text("#runs")
    assert "onerror=" in shown, "names are shown as text"
    assert "is a link out of its folder" in shown
    assert page.ask("document.title") == "phalanx"
    assert page.ask("document.querySelectorAll('img').length") == 0
    assert page.ask("document.querySelectorAll('script').length") == 1
    assert hostile.SECRET not in page.ask("document.documentElement.outerHTML")
    assert page.complaints == []


def test_the_page_says_that_the_command_has_ended(page, tmp_path):
    write_run(tmp_path / "a")
    server = Server(Library([tmp_path]), 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    page.open(server.address)
    server.shutdown()
    server.server_close()
    # A connection that is open still answers; the next one does not.
    slow = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.call("Network.emulateNetworkConditions", offline=True, **slow)
    page.until("!document.querySelector('#trouble').hidden")
    assert page.text("#trouble") == "phalanx ui has stopped: start it again to continue"
    page.call("Network.emulateNetworkConditions", offline=False, **slow)
