"""A Ray cluster of two nodes in a process of its own: prints its address, and removes the node of a process.

    python tests/two_nodes.py

Each line that it reads is the number of a process; the node that has it is removed.
"""

import sys
from pathlib import Path

from ray.cluster_utils import Cluster


def ancestors(number):
    found = []
    while number > 1:
        number = int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(number)
    return found


def main():
    cluster = Cluster(True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    print(cluster.address, flush=True)
    for line in sys.stdin:
        above = ancestors(int(line))
        for node in nodes:
            (raylet,) = node.all_processes["raylet"]
            if raylet.process.pid in above:
                cluster.remove_node(node, allow_graceful=False)
        print("removed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
