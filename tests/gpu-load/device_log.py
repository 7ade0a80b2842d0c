"""What a program told the device: the stand-in's log of one process, batch by batch.

A line is a call: `launch STREAM GRID BLOCK SHARED KERNEL`, `gemm STREAM MxNxK BATCH WORKSPACE FUNCTION`, `copy STREAM in|out|within|host
async|sync BYTES`, `set STREAM BYTES`, `record STREAM EVENT`, `wait STREAM EVENT`, `sync device|stream|event`, `take|give|pin|unpin BYTES
ADDRESS` of memory, and `bad` with what a device would refuse.
"""

from pathlib import Path

# The batches in which memory is taken that later ones use again.
WARM_UP = 4
COMPUTE = "0"  # the stream on which libtorch computes
ATTENTION = ("flash_fwd", "fmha_cutlassF")


def calls(folder):
    """The calls of each process that has launched something."""
    logs = [path.read_text(encoding="utf-8").splitlines() for path in sorted(Path(folder).glob("*.log"))]
    return [[line.split(" ") for line in lines] for lines in logs if any(line.startswith("launch") for line in lines)]


def batches(log):
    """The calls of each batch: it begins with a copy of its tokens to the device, which nothing waits for."""
    found, launched = [], True
    for call in log:
        if call[0] == "copy" and call[2:4] == ["in", "async"] and launched:
            found.append([])
            launched = False
        launched |= call[0] == "launch"
        if found:
            found[-1].append(call)
    # In fp8 the first has the built-in proteins, while the model is loaded.
    in_8_bits = any(call[0] == "launch" and "e4m3" in call[5] for call in log)
    return found[1:] if in_8_bits else found


def steady(log):
    """The batches that have the memory of those before them, without the last, which ends with the run."""
    return batches(log)[WARM_UP:-1]


def refused(log):
    """What no run may do."""
    return [" ".join(call[1:]) for call in log if call[0] == "bad"]


def stalls(log):
    """Calls of the steady state for which the host waits until a stream or the device is idle."""
    return [
        " ".join(call)
        for batch in steady(log)
        for call in batch
        if (call[0] == "sync" and call[1] != "event") or (call[0] == "copy" and call[3] == "sync")
    ]


def taken(log):
    """Memory of the device and of the host that is taken in the steady state."""
    return [" ".join(call[:2]) for batch in steady(log) for call in batch if call[0] in ("take", "pin")]


def growth(log):
    """By how many bytes the memory of the device grows from the first steady batch to the last, and over how many. Only without
    libtorch's cache of memory is it exact."""
    held, at_start = 0, []
    for batch in batches(log):
        at_start.append(held)
        for call in batch:
            held += {"take": 1, "give": -1}.get(call[0], 0) * (int(call[1]) if call[0] in ("take", "give") else 0)
    at_start = at_start[WARM_UP:-1]
    return (at_start[-1] - at_start[0], len(at_start) - 1) if at_start else (0, 0)


def elsewhere(log):
    """Work on another stream than the one that computes."""
    return [" ".join(call) for call in log if call[0] in ("launch", "gemm", "set") and call[1] != COMPUTE]


def figures(batch):
    """Launches and GEMMs of a layer, from one attention to the next, and of the whole batch."""
    work = [call for call in batch if call[0] in ("launch", "gemm")]
    layers = [i for i, call in enumerate(work) if call[0] == "launch" and call[5].split("::")[-1].startswith(ATTENTION)]
    of_layers = [work[first:last] for first, last in zip(layers, layers[1:], strict=False)]

    def count(calls, kind):
        return sum(call[0] == kind for call in calls)

    return {
        "launches a layer": max((count(layer, "launch") for layer in of_layers), default=0),
        "GEMMs a layer": max((count(layer, "gemm") for layer in of_layers), default=0),
        "launches a batch": count(batch, "launch"),
        "GEMMs a batch": count(batch, "gemm"),
    }


def races(log):
    """Copies that do not wait for what they read, and work that does not wait for what was copied to it.

    Each stream knows how far it is behind every other, by the events for which it has waited.
    """
    done, seen, events = {}, {}, {}  # stream -> calls; stream -> {other: calls}; event -> the same of its stream
    launched, copied_in = {}, {}  # stream -> its last launch, and its last copy to the device
    found = []

    def behind(stream, others):
        known = seen.setdefault(stream, {})
        return [other for other, last in others.items() if other != stream and known.get(other, 0) < last]

    for call in log:
        if call[0] in ("launch", "gemm", "set", "copy", "record", "wait"):
            stream = call[1]
            done[stream] = done.get(stream, 0) + 1
        if call[0] == "record":
            events[call[2]] = seen.get(stream, {}) | {stream: done[stream]}
        elif call[0] == "wait":
            known = seen.setdefault(stream, {})
            for other, at in events.get(call[2], {}).items():
                known[other] = max(known.get(other, 0), at)
        elif call[0] == "copy":
            if call[2] == "out":
                found += [f"{' '.join(call)}: before stream {other} is waited for" for other in behind(stream, launched)]
            elif call[2] == "in":
                copied_in[stream] = done[stream]
        elif call[0] in ("launch", "gemm", "set"):
            found += [f"{' '.join(call)}: before the copies of stream {other}" for other in behind(stream, copied_in)]
            launched[stream] = done[stream]
    return found
