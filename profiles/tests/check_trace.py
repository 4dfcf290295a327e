#!/usr/bin/env python3
"""Check a trace file with another JSON reader and the rules of the trace viewers.

usage: check_trace.py FILE
       check_trace.py --program TRACE_SAMPLE

The second form has TRACE_SAMPLE write the file. Checked: the text is JSON without duplicate keys,
NaN or lone surrogates; times have exactly three decimals; slices of one thread nest; no slice is
left open; threads and processes have names; each flow has a begin and an end, in order, each inside
a slice (what Perfetto counts as flow_no_enclosing_slice and slice_spill_overlapping_complete_event).
"""
import decimal
import json
import os
import subprocess
import sys
import tempfile

KINDS = {"step", "data", "forward", "backward", "optimizer", "sync", "compute", "comm",
         "comm-wait", "ready", "note", "copy", "overhead"}


def fail(message):
    sys.exit("check_trace: " + message)


def no_duplicates(pairs):
    keys = [key for key, _ in pairs]
    if len(keys) != len(set(keys)):
        fail("duplicate key among %r" % keys)
    return dict(pairs)


def no_constant(text):
    fail("%s is no JSON number" % text)


def load(path):
    with open(path, encoding="utf-8", errors="strict") as file:
        return json.load(file, parse_float=decimal.Decimal, parse_constant=no_constant,
                         object_pairs_hook=no_duplicates)


def nanoseconds(event, key):
    value = event[key]
    if not isinstance(value, decimal.Decimal) or value.as_tuple().exponent != -3 or value < 0:
        fail("%s of %r has not exactly three decimals" % (key, event))
    return int(value.scaleb(3))


def check_top(trace):
    for key, kind in (("schemaVersion", int), ("displayTimeUnit", str), ("traceName", str),
                      ("baseTimeNanoseconds", int), ("distributedInfo", dict), ("dpbench", dict),
                      ("traceEvents", list)):
        if not isinstance(trace.get(key), kind):
            fail("%s is missing or no %s" % (key, kind.__name__))
    if trace["displayTimeUnit"] not in ("ms", "ns"):
        fail("displayTimeUnit is %r" % trace["displayTimeUnit"])
    own = trace["dpbench"]
    if own["schema"] != "dpb.trace/1" or not own["clock"]:
        fail("schema or clock: %r" % own)
    if own["lost_events"] < 0 or own["negative_events"] < 0:
        fail("counts: %r" % own)
    found = sum(event["ph"] in "Xi" for event in trace["traceEvents"])
    if found != own["events"]:
        fail("%d events, but dpbench.events is %d" % (found, own["events"]))


def check_names(events):
    processes = {event["pid"] for event in events
                 if event["ph"] == "M" and event["name"] == "process_name"}
    threads = {(event["pid"], event["tid"]) for event in events
               if event["ph"] == "M" and event["name"] == "thread_name"}
    names = [(event["pid"], event["args"]["name"]) for event in events
             if event["ph"] == "M" and event["name"] == "thread_name"]
    if len(names) != len(set(names)):
        fail("two threads of a process share a name")
    for event in events:
        if event["ph"] == "M":
            continue
        if event["pid"] not in processes or (event["pid"], event["tid"]) not in threads:
            fail("no name for the thread of %r" % event)


def slices_by_thread(events):
    threads = {}
    for event in events:
        if event["ph"] == "X":
            start = nanoseconds(event, "ts")
            threads.setdefault((event["pid"], event["tid"]), []).append(
                (start, start + nanoseconds(event, "dur"), event["name"]))
    return threads


def check_nesting(threads):
    for thread, slices in threads.items():
        stack = []
        for start, end, name in sorted(slices, key=lambda s: (s[0], -s[1])):
            while stack and stack[-1] <= start:
                stack.pop()
            if stack and stack[-1] < end:
                fail("slice %r at %d of thread %r ends after the one around it"
                     % (name, start, thread))
            stack.append(end)


def check_flows(events, threads):
    ends = {}
    for event in events:
        if event["ph"] not in "sf":
            continue
        at = nanoseconds(event, "ts")
        slices = threads.get((event["pid"], event["tid"]), [])
        if not any(start <= at < end for start, end, _ in slices):
            fail("no slice around %r" % event)
        if event["ph"] == "f" and event.get("bp") != "e":
            fail("a flow's end without bp e: %r" % event)
        pair = ends.setdefault((event["cat"], event["name"], event["id"]), {})
        if event["ph"] in pair:
            fail("a flow begins or ends twice: %r" % event)
        pair[event["ph"]] = at
    for flow, pair in ends.items():
        if set(pair) != {"s", "f"} or pair["s"] > pair["f"]:
            fail("flow %r is incomplete or runs backwards: %r" % (flow, pair))
    return len(ends)


def check(path):
    trace = load(path)
    check_top(trace)
    events = trace["traceEvents"]
    for event in events:
        if event["ph"] not in ("X", "i", "M", "s", "f"):
            fail("phase of %r" % event)
        if event["ph"] in "Xi" and (event["cat"] not in KINDS or "step" not in event["args"]):
            fail("category or step of %r" % event)
        if event["ph"] == "i" and event["s"] != "t":
            fail("scope of %r" % event)
    check_names(events)
    threads = slices_by_thread(events)
    check_nesting(threads)
    return trace, check_flows(events, threads), threads


def check_sample(program):
    """The sample is known: look at its values, too."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        subprocess.run([program, path], check=True)
        if os.listdir(folder) != ["trace.json"]:
            fail("left over: %r" % os.listdir(folder))
        trace, flows, threads = check(path)
    if flows != 18:
        fail("%d flows, not 3 for each of 2 ranks and 3 steps" % flows)
    if trace["baseTimeNanoseconds"] != 2**53 + 1:
        fail("baseTimeNanoseconds is %d" % trace["baseTimeNanoseconds"])
    if trace["dpbench"]["lost_events"] != 3 or trace["dpbench"]["negative_events"] != 6:
        fail("counts: %r" % trace["dpbench"])
    names = {event["name"] for event in trace["traceEvents"]}
    for name in ('conv "1" \\ \b\x01\x1f\x7f\n\t Größe 🚀', "cut \ufffd\ufffd", ""):
        if name not in names:
            fail("name %r is not there" % name)
    both = ["comm", "comm (2)", "host"]
    device = ["device", "device (2)", "device comm", "device copy", "host (2)"]
    found = sorted((event["pid"], event["args"]["name"]) for event in trace["traceEvents"]
                   if event["ph"] == "M" and event["name"] == "thread_name")
    if found != [(0, name) for name in both] + [(1, name) for name in sorted(both + device)]:
        fail("threads: %r" % found)
    if len(threads) != len(found):
        fail("%d threads have slices, %d a name" % (len(threads), len(found)))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--program":
        check_sample(sys.argv[2])
    elif len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        check(sys.argv[1])
    else:
        sys.exit(__doc__)
