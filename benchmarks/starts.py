"""How much SMAC's scripted team depends on where the units stand at first.

    python benchmarks/starts.py [MAP ...] [--starts 64] [--battles 32]

Plays many battles from each of some starts, which differ only by the weapons' random cooldowns, and prints
how the win rates of the starts are spread: the table of "Where the figures differ" in docs/battle.md.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.registry import make_env

MAPS = ("3m", "10m_vs_11m", "2s3z", "3s5z", "1c3s5z", "bane_vs_bane", "corridor")
QUANTILES = (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)


def win_rates(name: str, starts: int, battles: int) -> np.ndarray:
    """(starts,): how often the scripted team wins from each start."""
    env = make_env(f"battle/{name}", {"starts": 512})
    script = env.spec.script
    assert script is not None

    def begin(key):
        state, told = env.reset(key)
        return state, told.observation, script.memory(1)[0], jnp.bool_(False), jnp.bool_(False)

    def step(key, carried):
        state, seen, memory, over, won = carried
        seen, memory = jax.tree.map(lambda x: x[None], (seen, memory))
        actions, memory = script.act(seen, jnp.zeros(1, bool), memory)
        new, told = env.step(key, state, actions[0])
        before = (state, jax.tree.map(lambda x: x[0], seen))
        kept = jax.tree.map(lambda o, n: jnp.where(over, o, n), before, (new, told.observation))
        return *kept, memory[0], over | told.terminated, won | ~over & told.info["won"]

    root = jax.random.key(0)
    keys = jnp.repeat(jax.random.split(root, starts), battles, axis=0)
    carried, advance = jax.vmap(begin)(keys), jax.jit(jax.vmap(step), donate_argnums=1)
    for t in range(env.spec.time_limit):
        carried = advance(jax.random.split(jax.random.fold_in(root, t), len(keys)), carried)
        if carried[3].all():
            break
    return np.asarray(carried[4]).reshape(starts, battles).mean(1)


def main() -> None:
    """Print one line for each map."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("maps", nargs="*", default=MAPS)
    parser.add_argument("--starts", type=int, default=64)
    parser.add_argument("--battles", type=int, default=32)
    args = parser.parse_args()
    columns = " | ".join(f"{100 * q:.0f} %" for q in QUANTILES)
    print(f"| battle | all starts | {columns} |\n|{'---|' * (2 + len(QUANTILES))}")
    for name in args.maps:
        rates = win_rates(name, args.starts, args.battles)
        spread = " | ".join(f"{100 * rate:.0f}" for rate in np.quantile(rates, QUANTILES))
        print(f"| `{name}` | {100 * rates.mean():.0f} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
