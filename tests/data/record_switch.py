"""Record `switch_trace.json` from ma-gym itself.

Needs an environment of its own, since ma-gym 0.0.14 wants an old gym (Python 3.11):

    python -m venv /tmp/magym && . /tmp/magym/bin/activate
    pip install setuptools==65.5.0 'wheel<0.40' 'pip<24.1'
    pip install --no-build-isolation 'numpy<2' ma-gym==0.0.14
    python tests/data/record_switch.py
"""

import json
from pathlib import Path

import numpy as np
from ma_gym.envs.switch import Switch

SETTINGS = [
    {"agents": agents, "clock": clock, "full_observability": full, "time_limit": limit}
    for agents in (2, 3, 4)
    for clock, full, limit in ((False, False, 50), (True, False, 100), (True, True, 50), (False, True, 50))
]
# Random walks hardly ever get home, so half of the episodes mostly walk towards it.
DOWN, LEFT, UP, RIGHT, STAY = range(5)


def homeward(env: Switch, agent: int) -> int:
    """A move that brings an agent nearer to its home through the corridor."""
    (row, col), (home_row, home_col) = env.agent_pos[agent], env.final_agent_pos[agent]
    side = 1 if home_col > 3 else -1
    in_home_room = col >= 5 if side > 0 else col <= 1
    if not in_home_room and row != 1:
        return DOWN if row < 1 else UP
    if in_home_room and row != home_row and col != home_col:
        return RIGHT if side > 0 else LEFT
    if col != home_col:
        return RIGHT if side > 0 else LEFT
    return DOWN if home_row > row else UP if home_row < row else STAY


def record(setting: dict, episodes: int, rng: np.random.Generator) -> list:
    env = Switch(
        n_agents=setting["agents"],
        clock=setting["clock"],
        full_observable=setting["full_observability"],
        max_steps=setting["time_limit"],
        step_cost=-0.1,
    )
    recorded = []
    for episode in range(episodes):
        trace = {"obs": [env.reset()], "actions": [], "rewards": [], "dones": []}
        done = [False]
        while not all(done):
            actions = rng.integers(0, 5, setting["agents"]).tolist()
            if episode % 2:
                # One agent after the other, the way to solve it, with some noise.
                waiting = [a for a in range(setting["agents"]) if not done[a % len(done)]]
                actions = [
                    homeward(env, a) if a == waiting[0] and rng.random() < 0.9 else move
                    for a, move in enumerate(actions)
                ]
            obs, rewards, done, _ = env.step(actions)
            trace["obs"].append(obs)
            trace["actions"].append(actions)
            trace["rewards"].append(rewards)
            trace["dones"].append(list(done))
        recorded.append(trace)
    return recorded


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    traces = [{"setting": setting, "episodes": record(setting, 6, rng)} for setting in SETTINGS]
    path = Path(__file__).with_name("switch_trace.json")
    path.write_text(json.dumps({"source": "ma-gym 0.0.14", "traces": traces}, separators=(",", ":")) + "\n")
    won = sum(len(e["actions"]) < t["setting"]["time_limit"] for t in traces for e in t["episodes"])
    print(f"{path}: {sum(len(t['episodes']) for t in traces)} episodes, {won} of them came home")
