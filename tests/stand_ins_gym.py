"""Stand-ins for ma-gym and Google football, which need old versions of gym and a Python of their own."""

import pickle
import random
import types

import numpy as np
from stand_ins import Named, install


class Discrete:
    def __init__(self, n):
        self.n = n


class Box:
    def __init__(self, shape):
        self.shape = shape


class Corridor:
    """An environment of ma-gym: gym 0.20's interface, lists in and out, `done` for all agents at the limit.

    Agent i is home after i + 2 steps to the right. Unlike in ma-gym, agents have different spaces.
    """

    def __init__(self, n_agents=2, max_steps=5):
        assert n_agents <= 4, "Number of Agents has to be at most 4"
        self.n_agents, self._max_steps = n_agents, max_steps
        self.action_space = [Discrete(3 + agent) for agent in range(n_agents)]
        self.observation_space = [Box((2 + agent,)) for agent in range(n_agents)]
        self.unwrapped = self
        self.seed()

    def seed(self, n=None):
        self.np_random = np.random.default_rng(n)
        return [n]

    def reset(self):
        self.steps, self.dones = 0, [False] * self.n_agents
        self.places = [0] * self.n_agents
        self.noise = self.np_random.uniform()
        return self._seen()

    def _seen(self):
        drawn = [self.noise, random.random(), 0.5, 0.5]
        return [[drawn[agent]] + [place] * (agent + 1) for agent, place in enumerate(self.places)]

    def step(self, actions):
        assert all(type(action) is int for action in actions)
        self.steps += 1
        rewards = []
        for agent, action in enumerate(actions):
            rewards.append(0 if self.dones[agent] else -0.1)
            if not self.dones[agent] and action == 1:
                self.places[agent] += 1
                self.dones[agent] = self.places[agent] == agent + 2
                rewards[-1] = 5 if self.dones[agent] else -0.1
        if self.steps >= self._max_steps:
            self.dones[:] = [True] * self.n_agents
        return self._seen(), rewards, self.dones, {}

    def get_action_meanings(self, agent=None):
        return [["LEFT", "RIGHT", "NOOP", "WAVE"][: space.n] for space in self.action_space]

    def close(self):
        pass


class Endless(Corridor):
    def __init__(self):
        super().__init__()


class Lumberjacks(Corridor):
    """Begins where the episode before began, and then a little further."""

    begins = 0

    def reset(self):
        self.begins += 1
        super().reset()
        self.noise = self.noise * (self.begins > 1) + self.begins
        return self._seen()


class GymError(Exception):
    pass


def make(name, **options):
    known = {"Switch2-v0": Corridor, "TrafficJunction4-v0": Corridor, "PongDuel-v0": Endless}
    known["Lumberjacks-v0"] = Lumberjacks
    if name not in known:
        raise GymError(f"No registered env with id: {name}")
    return known[name](**options)


def install_ma_gym(monkeypatch):
    install(
        monkeypatch, {"gym": {"make": make, "error": types.SimpleNamespace(Error=GymError)}, "ma_gym": {}}
    )


DURATION = 7
SCENARIOS = {"academy_3_vs_1_with_keeper": [0, 5, 5, 5], "academy_empty_goal_close": [0, 9]}


class Config:
    """gfootball's configuration: every scenario draws a seed from Python's global generator."""

    def __init__(self, values=None):
        self.values = values
        random.randint(0, 2000000000)

    def ScenarioConfig(self):
        roles = SCENARIOS[self.values["level"]]
        return Named("", controllable_left_players=len(roles), game_duration=DURATION)


def simple115(raw, fixed_positions):
    assert fixed_positions
    rows = np.full((len(raw), 115), -1.0, np.float32)
    for row, each in zip(rows, raw, strict=True):
        row[88:91] = each["ball"]
        row[97:108] = np.eye(11)[each["active"]]
    return rows


class Football:
    """gfootball's environment behind its wrappers: gym's step, arrays over players unless there is one.

    Ball and players move to the right. The seed of an episode decides how fast; a shot (action 12) scores.
    """

    closed = rendering = 0

    def __init__(self, env_name, stacked, representation, rewards, render, players, options):
        assert options == {"reverse_team_processing": False}
        assert render == representation.startswith("pixels")
        message = "Environment does not support multiple rendering instances in the same process."
        assert not (render and self.rendering), message
        self.render = render
        type(self).rendering += render
        self.roles, self.players = SCENARIOS[env_name], players
        self.representation, self.checkpoints = representation, "checkpoints" in rewards
        channels = {"extracted": 4, "pixels": 3, "pixels_gray": 1}.get(representation, 0) * (
            4 if stacked else 1
        )
        shape = (72, 96, channels) if channels else (115,)
        self.observation_space = Box(shape if players == 1 else (players, *shape))
        self.unwrapped = self
        self.reset()

    def reset(self):
        self.speed = random.randint(0, 2000000000) / 2e10
        self.x, self.score, self.steps, self.owner = 0.0, [0, 0], 0, 0
        return self._seen()

    def observation(self):
        shared = {
            "ball": np.array([self.x, 0.0, 0.1]),
            "ball_direction": np.array([self.speed if self.steps else 0.0, 0.0, 0.0]),
            "ball_owned_team": self.owner,
            "left_team_roles": np.array(self.roles),
            "left_team_active": np.ones(len(self.roles), bool),
            "score": self.score,
            "steps_left": DURATION - self.steps,
        }
        first = len(self.roles) - self.players  # the goalkeeper is the last to be controlled
        return [{**shared, "active": first + player} for player in range(self.players)]

    def _seen(self):
        shape = self.observation_space.shape
        if self.representation != "simple115v2":
            return np.full(shape, 200, np.uint8)
        return simple115(self.observation(), True).reshape(shape)

    def step(self, actions):
        assert len(actions) == self.players
        self.steps += 1
        self.x += self.speed
        goal = 12 in actions
        self.score[0] += goal
        self.owner = 1 if 13 in actions else 0
        reward = np.full(self.players, float(goal), np.float32)
        if self.checkpoints:
            reward[0] += 0.1
        done = goal or self.owner == 1 or self.steps >= DURATION
        return self._seen(), reward if self.players > 1 else reward[0], done, {"score_reward": int(goal)}

    def get_state(self):
        return pickle.dumps((self.speed, self.x, self.score, self.steps, self.owner))

    def set_state(self, state):
        self.speed, self.x, self.score, self.steps, self.owner = pickle.loads(state)

    def close(self):
        type(self).closed += 1
        type(self).rendering -= self.render


def create_environment(
    env_name,
    stacked=False,
    representation="extracted",
    rewards="scoring",
    render=False,
    number_of_left_players_agent_controls=1,
    other_config_options=None,
):
    players = number_of_left_players_agent_controls
    return Football(env_name, stacked, representation, rewards, render, players, other_config_options)


def install_football(monkeypatch):
    install(
        monkeypatch,
        {
            "gfootball.env": {"create_environment": create_environment},
            "gfootball.env.config": {"Config": Config},
            "gfootball.env.scenario_builder": {"all_scenarios": lambda: [*SCENARIOS, "tests"]},
            "gfootball.env.wrappers": {
                "Simple115StateWrapper": types.SimpleNamespace(convert_observation=simple115)
            },
            "gfootball.env.football_action_set": {
                "action_set_dict": {"default": ["idle", "left", *(f"action_{n}" for n in range(2, 19))]}
            },
        },
    )
