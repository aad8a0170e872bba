"""A program that speaks StarCraft II's protocol, so that SMAC's own class runs without the game.

Two teams of toy units walk straight and shoot. It tests an adapter, and is good for nothing else. It needs
`s2clientprotocol`, and no phalanx. SMAC starts it as `SC2_x64 -listen HOST -port PORT ...`.
"""

import base64
import hashlib
import math
import os
import random
import socket
import struct
import sys

from s2clientprotocol import sc2api_pb2 as sc

SIZE = 32
MOVE, ATTACK = 16, 23
SPEED, RANGE, DAMAGE = 0.14, 6.0, 1.0  # a game loop
# Allies by SMAC's own numbers, from the smallest; enemies by the game's.
# The map of SMACv2 is empty: the environment creates its units.
TEAMS = {
    "32x32_flat": ([], []),
    "3m": ([(2000, 3)], [(48, 3)]),
    "2s3z": ([(2000, 2), (2001, 3)], [(74, 2), (73, 3)]),
}


class World:
    """Units by tag. It draws on for all games after one launch, as the real game does."""

    def __init__(self, map_name, seed):
        self.random = random.Random(seed)
        self.teams, self.units, self.orders, self.loop, self.tags = TEAMS[map_name], {}, {}, 0, 0
        self.spawn()

    def spawn(self):
        self.orders = {}
        for owner, x, team in ((1, 9.0, self.teams[0]), (2, 17.0, self.teams[1])):
            for kind, count in team:
                for _ in range(count):
                    self.create(kind, owner, x, 16.0 + self.random.uniform(-3.0, 3.0))

    def create(self, kind, owner, x, y):
        self.tags += 1
        self.units[self.tags] = [kind, owner, x, y, 45.0]

    def command(self, order):
        for tag in order.unit_tags:
            self.orders[tag] = order

    def kill(self, tags):
        for tag in tags:
            self.units.pop(tag, None)

    def step(self, loops):
        for _ in range(loops):
            self.loop += 1
            for tag in list(self.units):
                if tag in self.units:
                    self.act(tag, self.units[tag])
        if not self.units:  # the trigger of SMAC's maps
            self.spawn()

    def act(self, tag, unit):
        if unit[1] == 2:
            allies = [other for other, each in self.units.items() if each[1] == 1]
            if allies:
                self.attack(unit, min(allies, key=lambda other: self.distance(unit, self.units[other])))
            return
        order = self.orders.get(tag)
        if order is not None and order.ability_id == MOVE:
            self.walk(unit, order.target_world_space_pos.x, order.target_world_space_pos.y)
        elif order is not None and order.ability_id == ATTACK and order.target_unit_tag in self.units:
            self.attack(unit, order.target_unit_tag)

    @staticmethod
    def distance(one, two):
        return math.hypot(one[2] - two[2], one[3] - two[3])

    def walk(self, unit, x, y):
        far = math.hypot(x - unit[2], y - unit[3])
        part = min(1.0, SPEED / far) if far else 0.0
        unit[2] += (x - unit[2]) * part
        unit[3] += (y - unit[3]) * part

    def attack(self, unit, tag):
        target = self.units[tag]
        if self.distance(unit, target) > RANGE:
            self.walk(unit, target[2], target[3])
            return
        target[4] -= DAMAGE * self.random.random()
        if target[4] <= 0:
            del self.units[tag]


class Answers:
    """Answers requests, one method for each kind."""

    def __init__(self):
        self.status, self.world = sc.launched, None

    def __call__(self, request):
        response = sc.Response()
        kind = request.WhichOneof("request")
        getattr(response, kind).SetInParent()
        getattr(self, kind, lambda *_: None)(getattr(request, kind), getattr(response, kind))
        response.id, response.status = request.id, self.status
        return response

    def create_game(self, asked, _):
        name = os.path.splitext(os.path.basename(asked.local_map.map_path))[0]
        self.world, self.status = World(name, asked.random_seed), sc.init_game

    def join_game(self, _, answer):
        answer.player_id, self.status = 1, sc.in_game

    def game_info(self, _, answer):
        start = answer.start_raw
        start.map_size.x = start.map_size.y = SIZE
        start.playable_area.p1.x = start.playable_area.p1.y = SIZE
        start.pathing_grid.bits_per_pixel, start.pathing_grid.data = 1, b"\xff" * (SIZE * SIZE // 8)
        start.terrain_height.bits_per_pixel, start.terrain_height.data = 8, b"\x7f" * (SIZE * SIZE)

    def observation(self, _, answer):
        answer.observation.game_loop = self.world.loop
        for tag, (kind, owner, x, y, health) in self.world.units.items():
            unit = answer.observation.raw_data.units.add(tag=tag, unit_type=kind, owner=owner)
            unit.pos.x, unit.pos.y, unit.health, unit.health_max = x, y, health, 45.0

    def action(self, asked, _):
        for each in asked.actions:
            self.world.command(each.action_raw.unit_command)

    def debug(self, asked, _):
        for each in asked.debug:
            self.world.kill(each.kill_unit.tag)
            if each.HasField("create_unit"):
                new = each.create_unit
                self.world.create(new.unit_type, new.owner, new.pos.x, new.pos.y)

    def data(self, _, answer):
        for kind in range(2009):  # SMACv2's own unit types are the last nine
            answer.units.add(unit_id=kind, name=str(kind))

    def step(self, asked, _):
        self.world.step(asked.count)

    def quit(self, *_):
        self.status = sc.quit


def receive(stream):
    """The payload of a frame of a websocket client; None when it is gone."""
    head = stream.read(2)
    if len(head) < 2 or head[0] & 15 == 8:
        return None
    size = head[1] & 127
    if size >= 126:
        size = struct.unpack(">H" if size == 126 else ">Q", stream.read(2 if size == 126 else 8))[0]
    mask, data = stream.read(4), stream.read(size)
    return bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))


def send(stream, data):
    size = len(data)
    length = bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size) if size < 65536 else None
    stream.write(b"\x82" + (length or b"\x7f" + struct.pack(">Q", size)) + data)
    stream.flush()


def shake_hands(stream):
    """Answer the request that opens a websocket."""
    lines = iter(stream.readline, b"\r\n")
    fields = dict(line.decode().strip().split(": ", 1) for line in lines if b": " in line)
    key = fields["Sec-WebSocket-Key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(key).digest())
    stream.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
    stream.write(b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
    stream.flush()


def main():
    options = dict(zip(sys.argv[1::2], sys.argv[2::2]))  # noqa: B905  (SMAC runs on old Pythons)
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((options["-listen"], int(options["-port"])))
    server.listen()
    stream = server.accept()[0].makefile("rwb")
    shake_hands(stream)
    answers = Answers()
    while (data := receive(stream)) is not None:
        response = answers(sc.Request.FromString(data))
        send(stream, response.SerializeToString())
        if response.status == sc.quit:
            break


if __name__ == "__main__":
    main()
