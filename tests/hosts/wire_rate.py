#!/usr/bin/env python3
"""What a wire carries over one TCP connection, as fast as it goes; needs a receiver on the other host.

  wire_rate.py receive PORT            waits for a sender
  wire_rate.py send HOST PORT BYTES    sends so much; prints payload bytes per second
  wire_rate.py exchange HOST PORT BYTES
      both send, as two ranks of a ring do: a piece of 1 MiB goes each way, then the next; prints payload
      bytes per second of one direction

The first quarter is not counted: TCP starts slowly."""
import socket
import struct
import sys
import threading
import time

HEAD = struct.Struct("!?q")
PIECE = bytes(1 << 20)
PATIENCE_S = 60


def receive_all(peer, count):
    buffer = memoryview(bytearray(1 << 20))
    while count > 0:
        count -= peer.recv_into(buffer[:min(count, len(buffer))])


def move(peer, sends, receives):
    """One piece, both ways or one."""
    sender = threading.Thread(target=peer.sendall, args=(PIECE,)) if sends and receives else None
    if sender:
        sender.start()
    elif sends:
        peer.sendall(PIECE)
    if receives:
        receive_all(peer, len(PIECE))
    if sender:
        sender.join()


def work(peer, pieces, sends, receives):
    for i in range(pieces):
        if i == pieces // 4:
            start = time.monotonic_ns()
        move(peer, sends, receives)
    return (pieces - pieces // 4) * len(PIECE) * 10**9 // (time.monotonic_ns() - start)


def receive(port):
    with socket.create_server(("", port)) as server:
        server.settimeout(PATIENCE_S)
        peer, _ = server.accept()
    with peer:
        peer.settimeout(None)
        exchanges, pieces = HEAD.unpack(peer.recv(HEAD.size, socket.MSG_WAITALL))
        rate = work(peer, pieces, exchanges, True)
        peer.sendall(HEAD.pack(exchanges, rate))


def connect(host, port):
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            peer = socket.create_connection((host, port), PATIENCE_S)
            peer.settimeout(None)
            return peer
        except OSError:  # it does not listen yet, or its wire has only just come back
            time.sleep(0.1)
    sys.exit(f"wire_rate: nobody listens at {host}:{port}")


def send(host, port, count, exchanges):
    pieces = max(count // len(PIECE), 4)
    with connect(host, port) as peer:
        peer.sendall(HEAD.pack(exchanges, pieces))
        work(peer, pieces, True, exchanges)
        print(HEAD.unpack(peer.recv(HEAD.size, socket.MSG_WAITALL))[1])


if sys.argv[1] == "receive":
    receive(int(sys.argv[2]))
else:
    send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[1] == "exchange")
