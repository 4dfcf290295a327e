#!/usr/bin/env python3
"""What a wire carries: one TCP connection, as fast as it goes.

  wire_rate.py receive PORT           waits for a sender
  wire_rate.py send HOST PORT BYTES   sends so much; prints payload bytes per second, by the receiver's clock

The first quarter is not counted: TCP starts slowly."""
import socket
import struct
import sys
import time

FRAME = struct.Struct("!q")


def receive(port):
    with socket.create_server(("", port)) as server:
        peer, _ = server.accept()
    with peer:
        total, = FRAME.unpack(peer.recv(FRAME.size, socket.MSG_WAITALL))
        buffer = bytearray(1 << 20)
        got, start, skipped = 0, None, 0
        while got < total:
            got += peer.recv_into(buffer)
            if start is None and got >= total // 4:
                start, skipped = time.monotonic_ns(), got
        rate = (got - skipped) * 10**9 // (time.monotonic_ns() - start)
        peer.sendall(FRAME.pack(rate))


def send(host, port, total):
    for _ in range(100):
        try:
            peer = socket.create_connection((host, port))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    else:
        sys.exit(f"wire_rate: nobody listens at {host}:{port}")
    with peer:
        peer.sendall(FRAME.pack(total))
        left, piece = total, bytes(1 << 20)
        while left > 0:
            left -= peer.send(piece[:left])
        print(FRAME.unpack(peer.recv(FRAME.size, socket.MSG_WAITALL))[0])


if sys.argv[1] == "receive":
    receive(int(sys.argv[2]))
else:
    send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
