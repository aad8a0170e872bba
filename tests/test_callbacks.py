"""Callbacks: what they see and when, and how they end a run."""

import math

import pytest
from test_run import assert_same_end, small

import phalanx
from phalanx.callbacks import Evaluation
from phalanx.errors import PhalanxError

STEPS = {"steps": 256, "eval_every": 64}  # 4 updates of 64 env steps, evaluated after each


class Diary(phalanx.Callback):
    """Writes down every call."""

    def __init__(self):
        self.calls, self.seen = [], []

    def on_start(self, folder):
        self.calls.append(("start", (folder / "run.json").exists()))

    def on_evaluation(self, evaluation):
        self.calls.append(("evaluation", evaluation.env_steps))
        self.seen += evaluation.rows

    def on_end(self, folder, final):
        self.calls.append(("end", final["last"]["episodes"], phalanx.api.Run(folder).facts["status"]))


class StopAt(phalanx.Callback):
    """Stops at some env steps, or at the start."""

    def __init__(self, env_steps):
        self.env_steps = env_steps

    def on_start(self, folder):
        if self.env_steps is None:
            raise phalanx.StopTraining("not today")

    def on_evaluation(self, evaluation):
        if evaluation.env_steps >= self.env_steps:
            raise phalanx.StopTraining("it is enough")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run to its end, and what was called in it."""
    diary = Diary()
    return small(tmp_path_factory.mktemp("whole") / "run", callbacks=[diary], **STEPS), diary


def test_the_order_of_calls_and_what_they_see(whole):
    run, diary = whole
    evaluations = [("evaluation", steps) for steps in (0, 64, 128, 192, 256)]
    assert diary.calls == [("start", True), *evaluations, ("end", 4, "finished")]
    assert diary.seen == run.metrics()


def test_a_stopped_run_is_finished_and_resume_goes_on_from_there(whole, tmp_path):
    run = small(tmp_path / "run", callbacks=[StopAt(128)], **STEPS)
    assert run.facts["status"] == "finished"
    assert run.facts["stopped_early"] == "it is enough"
    assert run.facts["final"]["last"]["episodes"] == 4
    assert run.metrics()[-1]["env_steps"] == 128
    run.policy()
    diary = Diary()
    phalanx.resume(run.folder, callbacks=[diary], quiet=True)
    assert diary.calls[1:-1] == [("evaluation", 192), ("evaluation", 256)]
    assert "stopped_early" not in run.facts
    assert_same_end(run.folder, whole[0].folder)


@pytest.mark.parametrize(("stop", "env_steps"), [(None, None), (256, 256)])
def test_a_run_can_stop_at_its_start_and_at_its_end(tmp_path, stop, env_steps):
    run = small(tmp_path / "run", callbacks=[StopAt(stop)], **STEPS)
    assert run.facts["status"] == "finished"
    assert [row["env_steps"] for row in run.metrics()][-1:] == ([env_steps] if env_steps else [])
    assert run.facts.get("stopped_early") == (None if env_steps else "not today")


def test_an_error_in_a_callback_is_noted_and_passed_on(tmp_path):
    class Broken(phalanx.Callback):
        def on_evaluation(self, evaluation):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        small(tmp_path / "run", callbacks=[Broken()], **STEPS)
    assert phalanx.api.Run(tmp_path / "run").facts["status"] == "failed: mine"


def test_an_unknown_metric_is_one_line_with_the_nearest_name(tmp_path):
    stopping = phalanx.EarlyStopping("eval/retrun", target=1)
    with pytest.raises(PhalanxError, match=r"no metric 'eval/retrun'. Did you mean eval/return"):
        small(tmp_path / "run", callbacks=[stopping], **STEPS)


@pytest.mark.parametrize(
    ("callbacks", "said"),
    [
        ([print], "must be an object of a subclass of phalanx.Callback, not <built-in function print>$"),
        ([Diary], r"not <class '.*Diary'>: write Diary\(\.\.\.\)"),
        (StopAt(1), "callbacks must be a list of callbacks, not <.*StopAt object"),
    ],
)
def test_what_is_no_callback_is_refused_before_anything_is_written(tmp_path, whole, callbacks, said):
    with pytest.raises(PhalanxError, match=said):
        small(tmp_path / "run", callbacks=callbacks)
    assert not (tmp_path / "run").exists()
    with pytest.raises(PhalanxError, match=said):
        phalanx.resume(whole[0].folder, 512, callbacks=callbacks, quiet=True)
    assert whole[0].facts["status"] == "finished"


# Early stopping, without a run


def stops_at(stopping, values, metric="eval/return"):
    """The number of the evaluation at which it stops, and why."""
    stopping.on_start(None)
    for i, value in enumerate(values):
        seeds = value if isinstance(value, tuple) else (value,)
        try:
            stopping.on_evaluation(Evaluation(None, i, [{metric: each} for each in seeds]))
        except phalanx.StopTraining as reason:
            return i, str(reason)
    return None


def test_early_stopping_by_target_is_of_the_mean_over_seeds():
    by_target = phalanx.EarlyStopping("eval/return", target=0.9)
    assert stops_at(by_target, [0.1, (0.5, 1.0), (0.9, 1.0), 1.0]) == (2, "eval/return reached 0.95")
    assert stops_at(by_target, [0.1, 0.8]) is None


def test_early_stopping_by_patience_begins_anew_in_every_run():
    patient = phalanx.EarlyStopping("eval/return", patience=2)
    reason = "eval/return did not improve for 2 evaluations"
    assert stops_at(patient, [1, 2, 2, 3, 2, 3, 4]) == (5, reason)
    assert stops_at(patient, [0, 1, 2, 2, 1]) == (4, reason)


def test_early_stopping_waits_for_a_first_value():
    """Sampled returns before an episode has ended, and losses before the first update, have none."""
    patient = phalanx.EarlyStopping("train/return", patience=1)
    assert stops_at(patient, [None, None, (None, 1.0), 1.0, 1.0], "train/return")[0] == 4
    start = Evaluation(None, 0, [{"eval/return": 1.0}])
    assert math.isnan(start.mean("learn/entropy"))
    with pytest.raises(PhalanxError, match="no metric 'learn/entropy'"):
        start._replace(env_steps=64).mean("learn/entropy")


@pytest.mark.parametrize(
    ("options", "said"), [({}, "needs a target, or a patience"), ({"patience": 0}, "at least 1")]
)
def test_early_stopping_that_could_not_stop_is_refused(options, said):
    with pytest.raises(PhalanxError, match=said):
        phalanx.EarlyStopping("eval/return", **options)
